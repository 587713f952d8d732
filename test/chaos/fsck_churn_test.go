package chaos

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/test/node"
)

// TestFsckUnderChurn repairs all the time while clients run and remove pods, as
// many as are usual, and more until it was done a few times. What operations
// have in their hands must never be taken for a leftover.
func TestFsckUnderChurn(t *testing.T) {
	for _, network := range []struct {
		name    string
		rounds  int
		options []node.Option
	}{{"bridge", 12, nil}, {"cni", 3, []node.Option{node.Conflist}}} {
		t.Run(network.name, func(t *testing.T) {
			const clients = 8
			n := node.Start(t, "", network.options...)
			n.Pull(node.Busybox)
			keeper := n.RunPod("").Start(node.Script(node.Numbers))
			ctx, stop := context.WithCancel(t.Context())
			g, ctx := errgroup.WithContext(ctx)
			var audits atomic.Int64
			audited := make(chan struct{})
			enough := func() bool {
				select {
				case <-audited: // it failed
					return true
				default:
					return audits.Load() >= 3
				}
			}
			for client := range clients {
				g.Go(func() error {
					for round := 0; round < network.rounds || !enough(); round++ {
						if err := churn(ctx, n, client, round); err != nil {
							return err
						}
					}
					return nil
				})
			}
			go func() {
				defer close(audited)
				for ; ctx.Err() == nil; audits.Add(1) {
					r := audit(t, n, adminv1.FsckRequest{Repair: true})
					if len(r.Findings) > 0 {
						t.Errorf("found under churn:\n%s", strings.Join(told(r.Findings), "\n"))
					}
				}
			}()
			if err := g.Wait(); err != nil {
				t.Errorf("a pod failed: %v", err)
			}
			stop()
			<-audited
			t.Logf("%d audits", audits.Load())
			keeper.StopNumbers()
			keeper.Wait()
			node.CheckNumbers(t, keeper.Log())
			wantInOrder(t, n)
		})
	}
}

// churn is the life of one pod with one container, from its making to its end.
func churn(ctx context.Context, n *node.Node, client, round int) error {
	name := fmt.Sprintf("churn-%d-%d", client, round)
	config := n.PodConfig(func(p *runtimeapi.PodSandboxConfig) {
		p.Metadata.Name = name
		p.PortMappings = []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: int32(32000 + client)}}
	})
	run, err := n.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		return fmt.Errorf("run %s: %w", name, err)
	}
	n.Know(run.PodSandboxId)
	c := node.Script("echo hello; sleep 1000")
	made, err := n.Runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: run.PodSandboxId, Config: c, SandboxConfig: config})
	if err != nil {
		return fmt.Errorf("create in %s: %w", name, err)
	}
	n.Know(made.ContainerId)
	if _, err := n.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: made.ContainerId}); err != nil {
		return fmt.Errorf("start in %s: %w", name, err)
	}
	said, err := n.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: made.ContainerId, Cmd: []string{"echo", "works"}, Timeout: 60})
	if err != nil || strings.TrimSpace(string(said.Stdout)) != "works" {
		return fmt.Errorf("exec in %s: %w, %v", name, err, said)
	}
	if round%2 == 0 {
		if _, err := n.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: made.ContainerId}); err != nil {
			return fmt.Errorf("stop in %s: %w", name, err)
		}
	}
	if _, err := n.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: run.PodSandboxId}); err != nil {
		return fmt.Errorf("stop %s: %w", name, err)
	}
	if _, err := n.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: run.PodSandboxId}); err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}
