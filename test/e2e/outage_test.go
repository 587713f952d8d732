package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	crowded    = "crowd"
	absentNode = "absent" // a node that nobody runs
	creators   = 16       // who create the crowd
)

// Something that is killed and stays away under pods that end, come and go: the API server
// in a cluster with very many pods, the agent, the runtime, or two of them. What ends meanwhile
// is restarted once if it is to be, and nothing else is; the others of the node's programs
// are killed meanwhile, too; and when all are back, what is told of each container is what
// the runtime has, and nothing is left of what has gone.
func TestOutage(t *testing.T) {
	if *outage == 0 {
		t.Skip("no -outage: make e2e-outage runs this")
	}
	s := newScene(t)
	if s.alone {
		makeCrowd(t, s.api)
	}
	s.begin()
	before := s.lives()
	memory := func() int { return memoryOf(t, node.Kubelet.Argv[1], "VmRSS:") }
	t.Logf("with %d pods in the cluster and %d here the agent has %d KiB", *crowd, len(s.wants), memory())

	s.comeAndGo()
	s.away = true
	if err := s.outage.kill(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	s.half(0)
	if err := s.outage.meanwhile(); err != nil {
		t.Fatal(err)
	}
	s.half(1)
	// Not a limit: it is what the test is about.
	time.Sleep(time.Until(begin.Add(*outage)))
	if err := s.outage.start(); err != nil {
		t.Fatal(err)
	}
	s.away = false
	back := time.Now()
	s.goOn()
	eventually(t, s.untrue)
	t.Logf("all that is told was true %s after it was back", time.Since(back).Round(time.Second))
	eventually(t, func() error { return node.NodeReady(t.Context()) })
	kubectlProbe(t, imageOf(t, "agnhost"))
	// The node may have been away for longer than its pods are given, and a controller may
	// have said of all of them meanwhile that they are not ready. The agent says so again.
	eventually(t, s.untrue)
	for name, now := range s.lives() {
		if was := before[name]; s.wants[name] == (fate{phase: corev1.PodRunning, ready: true}) && was != "" && now != was {
			t.Errorf("pod %s has container %s, and before the outage it had %s", name, now, was)
		}
	}
	s.wantEvents()
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
