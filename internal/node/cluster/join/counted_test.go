package join

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestCountedPods counts what the node is to run: a pod that has ended is not active.
func TestCountedPods(t *testing.T) {
	s := newSite(t)
	s.static.Folder = t.TempDir()
	text := `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "etcd"}, "spec": {"containers": [{"name": "c", "image": "i:1", "imagePullPolicy": "IfNotPresent"}]}}`
	if err := os.WriteFile(filepath.Join(s.static.Folder, "etcd.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	n := s.boot()
	s.await("the node", func() bool { return s.Get(nodesOf, "n") != nil })
	s.bind("n", "a")
	s.bindWith("n", "known", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	s.bindWith("n", "refused", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"no": "node"} })
	has := func(want ...string) func() bool {
		return func() bool {
			var out strings.Builder
			if err := n.podMetrics()(&out); err != nil {
				t.Fatal(err)
			}
			for _, line := range want {
				if !strings.Contains(out.String(), line+"\n") {
					return false
				}
			}
			return true
		}
	}
	s.await("the pods, counted", has(
		`kubelet_desired_pods{static=""} 3`, `kubelet_desired_pods{static="true"} 1`,
		`kubelet_active_pods{static=""} 1`, `kubelet_active_pods{static="true"} 1`, "kubelet_mirror_pods 1"))
	if list := n.given.all(); len(list) != 4 {
		t.Errorf("counting changes the pods: %v", list)
	}
	s.Delete(podsOf, "default/a")
	s.await("one pod less, counted", has(`kubelet_desired_pods{static=""} 2`, `kubelet_active_pods{static=""} 0`))
}
