package cri

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

func TestStopPodTwiceAndRemoveWithRunningContainers(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		a, b := s.Start(node.Script("sleep 1000")), s.Start(node.Script("sleep 1000"))
		// A running container may be removed.
		a.Remove()
		a.Remove()
		if _, err := n.Runtime.ContainerStatus(n.Ctx(), &runtimeapi.ContainerStatusRequest{ContainerId: a.ID}); err == nil {
			t.Error("a removed container has a status")
		}
		for range 2 {
			if _, err := n.Runtime.StopPodSandbox(n.Ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.ID}); err != nil {
				t.Fatal(err)
			}
		}
		if st := b.Status(); st.State != runtimeapi.ContainerState_CONTAINER_EXITED || st.ExitCode != 137 {
			t.Errorf("in a stopped pod: %+v", st)
		}
		if _, err := s.TryCreate(node.Script("true")); err == nil {
			t.Error("a stopped pod took a container")
		}
		// Running containers do not keep a pod from being removed.
		o := n.RunPod(h)
		o.Start(node.Script("sleep 1000"))
		for range 2 {
			if _, err := n.Runtime.RemovePodSandbox(n.Ctx(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: o.ID}); err != nil {
				t.Fatal(err)
			}
		}
		s.Remove()
	})
}

func TestStopEndsInTimeEvenIfEverythingIgnoresIt(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		c := s.Start(node.Script("trap '' TERM; (trap '' TERM; while :; do sleep 0.1; done) & echo ready; while :; do sleep 0.1; done"))
		node.Eventually(t, "ready", func() bool { return strings.Contains(c.Log(), "ready") })
		began := time.Now()
		c.Stop(1)
		if took := time.Since(began); took < time.Second || took > 3*time.Second {
			t.Errorf("took %s, want the grace of 1s and at most 2s more", took)
		}
		s.Remove()
	})
}

func TestLogPathStaysInTheLogDirectory(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		outside := filepath.Join(n.Dir, "outside.log")
		for _, path := range []string{"../../outside.log", outside} {
			cfg := node.Script("echo secret")
			cfg.LogPath = path
			id, err := s.TryCreate(cfg)
			if err == nil {
				err = (&node.Container{Sandbox: s, ID: id, Config: cfg}).TryStart()
			}
			if err == nil || !strings.Contains(err.Error(), "log_path") {
				t.Errorf("log path %s: %v", path, err)
			}
		}
		// By a link that a container with that folder mounted could have made.
		cfg := node.Script("echo secret")
		cfg.LogPath = "sub/outside.log"
		if err := errors.Join(os.MkdirAll(s.Config.LogDirectory, 0o755), os.Symlink(n.Dir, filepath.Join(s.Config.LogDirectory, "sub"))); err != nil {
			t.Fatal(err)
		}
		id, err := s.TryCreate(cfg)
		if err == nil {
			err = (&node.Container{Sandbox: s, ID: id, Config: cfg}).TryStart()
		}
		if err == nil || !strings.Contains(err.Error(), "symbolic link") {
			t.Errorf("log path through a link: %v", err)
		}
		if _, err := os.Stat(outside); err == nil {
			t.Error("a log was written outside the pod's log directory")
		}
		s.Remove()
	})
}

func TestUnwritableLogPath(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		cfg := node.Script("sleep 1000")
		if err := os.MkdirAll(filepath.Join(s.Config.LogDirectory, cfg.LogPath), 0o755); err != nil {
			t.Fatal(err)
		}
		id, err := s.TryCreate(cfg)
		if err == nil {
			err = (&node.Container{Sandbox: s, ID: id, Config: cfg}).TryStart()
		}
		if err == nil || !strings.Contains(err.Error(), cfg.LogPath) {
			t.Errorf("a folder for a log: %v", err)
		}
		s.Remove()
		// The kernel removes a pod's link a moment after its namespace.
		node.Eventually(t, "nothing of the pod is left", func() bool { return len(n.OfPods()) == 0 })
	})
}

// Pods of every kind survive a daemon that is killed and one that is ended.
func TestRestartsWithPodsOfEveryKind(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		plain, shared := n.RunPod(h), n.RunPod(h, node.SharedPID)
		host := n.RunPod(h, func(p *runtimeapi.PodSandboxConfig) {
			o := p.Linux.SecurityContext.NamespaceOptions
			o.Network, o.Pid, o.Ipc = runtimeapi.NamespaceMode_NODE, runtimeapi.NamespaceMode_NODE, runtimeapi.NamespaceMode_NODE
			p.Hostname = ""
		})
		stopped := n.RunPod(h)
		if _, err := n.Runtime.StopPodSandbox(n.Ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: stopped.ID}); err != nil {
			t.Fatal(err)
		}
		terminal := node.Script("sleep 1000")
		terminal.Tty, terminal.Stdin = true, true
		tty := plain.Start(terminal)
		created := plain.Create(node.Script("sleep 1000"))
		ended := plain.Start(node.Script("exit 4"))
		ended.Wait()
		running := []*node.Container{tty}
		for _, s := range []*node.Sandbox{shared, host} {
			cfg := node.Script("sleep 1000")
			cfg.Linux.SecurityContext.NamespaceOptions = s.Config.Linux.SecurityContext.NamespaceOptions
			running = append(running, s.Start(cfg))
		}
		late := plain.Start(node.Script("while [ ! -e /go ]; do sleep 0.05; done; exit 6"))
		ips := plain.IPs()
		for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
			n.Kill(sig)
			n.Start()
			for _, c := range running {
				if st := c.Status(); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
					t.Errorf("after %s: %+v", sig, st)
				}
				must(t, c.Exec("echo", "alive"), "alive")
			}
			if st := created.Status(); st.State != runtimeapi.ContainerState_CONTAINER_CREATED {
				t.Errorf("after %s: %+v", sig, st)
			}
			if st := ended.Status(); st.State != runtimeapi.ContainerState_CONTAINER_EXITED || st.ExitCode != 4 {
				t.Errorf("after %s: %+v", sig, st)
			}
			if got := plain.IPs(); strings.Join(got, " ") != strings.Join(ips, " ") {
				t.Errorf("after %s: addresses %v, were %v", sig, got, ips)
			}
			st, err := n.Runtime.PodSandboxStatus(n.Ctx(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: stopped.ID})
			if err != nil || st.Status.State != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
				t.Errorf("after %s: %+v %v", sig, st, err)
			}
		}
		// What ends while no daemon looks is known by the next.
		late.Exec("true")
		pid := late.Exec("sh", "-c", "(sleep 0.5; touch /go) >/dev/null 2>&1 & echo ok")
		must(t, pid, "ok")
		n.Kill(syscall.SIGKILL)
		time.Sleep(time.Second)
		n.Start()
		if st := late.Wait(); st.ExitCode != 6 {
			t.Errorf("ended alone: %+v", st)
		}
		if err := created.TryStart(); err != nil {
			t.Error(err)
		}
		for _, s := range []*node.Sandbox{plain, shared, host, stopped} {
			s.Remove()
		}
	})
}
