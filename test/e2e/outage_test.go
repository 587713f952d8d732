package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/test/e2e/cluster"
)

const (
	crowded    = "crowd"
	absentNode = "absent" // a node that nobody runs
	stayers    = 50
	creators   = 16 // who create the crowd
)

// An API server that is killed and stays away, in a cluster with very many pods: the
// pods of the node run on, one that ends meanwhile is restarted once, the agent is
// killed and starts again without the API server, and when that is back all is told.
func TestOutage(t *testing.T) {
	if *outage == 0 {
		t.Skip("no -outage: make e2e-outage runs this")
	}
	a := newAPI(t)
	makeCrowd(t, a)
	a.namespaceFor(t, "outage", nil)
	folder := t.TempDir()
	var names []string
	for i := range stayers {
		names = append(names, fmt.Sprintf("stays-%d", i))
		a.must(t, http.MethodPost, podsOf("outage"), stayer(t, names[i], folder), nil)
	}
	kubectl(t, "wait", "-n", "outage", "--for=condition=Ready", "--timeout", patience.String(), "pod", "--all")
	before := a.lives(t)
	memory := func() int { return memoryOf(t, node.Kubelet.Argv[1], "VmRSS:") }
	t.Logf("with %d pods in the cluster and %d here the agent has %d KiB", *crowd, stayers, memory())

	if err := node.APIServer.Kill(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	lost := []string{names[0], names[1]} // one ends under the old agent, the other under the new one
	end(t, folder, lost[0])
	if err := again(node.Kubelet.Kill, node.Kubelet.Start); err != nil {
		t.Fatal(err)
	}
	end(t, folder, lost[1])
	// Not a limit: it is what the test is about.
	time.Sleep(time.Until(begin.Add(*outage)))
	if err := node.APIServer.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return node.NodeReady(t.Context()) })

	// The node has been away for longer than its pods are given: nobody may take them.
	for _, name := range lost {
		eventually(t, func() error {
			now, err := a.life(t.Context(), name)
			if err == nil && (!now.ready || now.restarts != 1 || now.id == before[name].id || now.ended != 3) {
				err = fmt.Errorf("pod %s, whose container ended once with 3: %+v", name, now)
			}
			return err
		})
	}
	kubectlProbe(t, imageOf(t, "agnhost"))
	// A controller may have said of all pods that they are not ready, as it had not heard
	// of their node. The agent says so again.
	eventually(t, func() error {
		for name, now := range a.lives(t) {
			if name != lost[0] && name != lost[1] && now != before[name] {
				return fmt.Errorf("pod %s before the outage %+v, and after it %+v", name, before[name], now)
			}
		}
		return nil
	})
	t.Logf("after the outage the agent has %d KiB", memory())
}

// makeCrowd has pods of another node, as many as are wanted.
func makeCrowd(t *testing.T, a *api) {
	t.Helper()
	a.must(t, http.MethodPost, "/api/v1/nodes", object{"metadata": object{"name": absentNode}}, nil)
	t.Cleanup(func() {
		if _, err := node.Kubectl(context.Background(), "delete", "node", absentNode); err != nil {
			t.Error(err)
		}
	})
	a.must(t, http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": crowded}}, nil)
	eventually(t, func() error {
		if got := a.ask(t, http.MethodGet, "/api/v1/namespaces/"+crowded+"/serviceaccounts/default", nil); !got.ok() {
			return fmt.Errorf("the service account of the crowd: %s", got)
		}
		return nil
	})
	jobs, failed := make(chan int), make(chan error, creators)
	var all sync.WaitGroup
	for range creators {
		all.Go(func() {
			for i := range jobs {
				got, err := a.do(t.Context(), http.MethodPost, podsOf(crowded), oneOfMany(i))
				if err == nil && !got.ok() {
					err = errors.New(got.String())
				}
				if err != nil {
					failed <- err
					return
				}
			}
		})
	}
	begin := time.Now()
	for i := range *crowd {
		select {
		case jobs <- i:
		case err := <-failed:
			close(jobs)
			t.Fatal(err)
		}
	}
	close(jobs)
	all.Wait()
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
	t.Logf("%d pods are there after %s", *crowd, time.Since(begin).Round(time.Second))
}

// oneOfMany is a pod that stays although its node is never there.
func oneOfMany(i int) object {
	return object{
		"metadata": object{"name": fmt.Sprintf("crowd-%d", i), "labels": object{"app": "crowd", "part": fmt.Sprint(i % 100)}},
		"spec": object{
			"nodeName": absentNode, "automountServiceAccountToken": false,
			"tolerations": []object{{"operator": "Exists"}},
			"containers":  []object{{"name": "main", "image": "registry.example/app:1", "env": []object{{"name": "NUMBER", "value": fmt.Sprint(i)}}}},
		},
	}
}

// stayer is a pod of this node that ends with code 3 when somebody asks it to by a file,
// which it takes away.
func stayer(t *testing.T, name, folder string) object {
	return object{
		"metadata": object{"name": name},
		"spec": object{
			"nodeName": cluster.NodeName, "terminationGracePeriodSeconds": 1,
			"volumes": []object{{"name": "switch", "hostPath": object{"path": folder}}},
			"containers": []object{{
				"name": "main", "image": imageOf(t, "agnhost"),
				"command":      []string{"sh", "-c", "trap exit TERM; while ! rm /switch/" + name + " 2>/dev/null; do sleep 1; done; exit 3"},
				"volumeMounts": []object{{"name": "switch", "mountPath": "/switch"}},
			}},
		},
	}
}

// end ends the container of a stayer.
func end(t *testing.T, folder, name string) {
	t.Helper()
	file := filepath.Join(folder, name)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("the container of pod %s does not end", name)
		}
		return nil
	})
}

// life is what must not change by itself.
type life struct {
	id       string
	ready    bool
	restarts int32
	ended    int32 // the code with which the one before ended
}

func lifeOf(p *corev1.Pod) (out life) {
	out.ready = isReady(p)
	for _, c := range p.Status.ContainerStatuses {
		out.id, out.restarts = c.ContainerID, c.RestartCount
		if was := c.LastTerminationState.Terminated; was != nil {
			out.ended = was.ExitCode
		}
	}
	return out
}

func (a *api) life(ctx context.Context, name string) (life, error) {
	got, err := a.do(ctx, http.MethodGet, podsOf("outage")+"/"+name, nil)
	if err != nil {
		return life{}, err
	}
	var p corev1.Pod
	err = json.Unmarshal(got.body, &p)
	return lifeOf(&p), err
}

// lives are those of all pods that stay.
func (a *api) lives(t *testing.T) map[string]life {
	t.Helper()
	var list corev1.PodList
	a.must(t, http.MethodGet, podsOf("outage"), nil, &list)
	out := map[string]life{}
	for i := range list.Items {
		out[list.Items[i].Name] = lifeOf(&list.Items[i])
	}
	if len(out) != stayers {
		t.Errorf("there are %d pods of %d", len(out), stayers)
	}
	return out
}
