package webhook_test

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	admissionv1 "k8s.io/api/admission/v1"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/api/v1alpha1"
)

var (
	workerPoolKind = metav1.GroupVersionKind{Group: "fairlead.run", Version: "v1alpha1", Kind: "WorkerPool"}
	runtimeKind    = metav1.GroupVersionKind{Group: "extensions.gardener.cloud", Version: "v1alpha1", Kind: "ContainerRuntime"}
	shootKind      = metav1.GroupVersionKind{Group: "core.gardener.cloud", Version: "v1beta1", Kind: "Shoot"}
)

func workerPool(name string) *v1alpha1.WorkerPool {
	p := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.NodeSelector, p.Spec.MachineImage.Name = map[string]string{"group": "a"}, "ubuntu"
	p.Spec.CRI = v1alpha1.CRI{Name: "containerd", ContainerRuntimes: []v1alpha1.PoolRuntime{{Type: "gvisor"}}}
	return p
}

func aShoot() map[string]any {
	return map[string]any{"spec": map[string]any{
		"kubernetes": map[string]any{"version": "1.33.1"},
		"provider": map[string]any{"type": "aws", "workers": []any{map[string]any{
			"name": "w", "machine": map[string]any{"type": "m5.large"}, "cri": map[string]any{"name": "containerd", "containerRuntimes": []any{map[string]any{"type": "kata-containers"}}},
		}}},
	}}
}

func refused(t *testing.T, what string, got *admissionv1.AdmissionResponse, words string) {
	t.Helper()
	if words == "" {
		if !got.Allowed {
			t.Errorf("%s: %+v", what, got.Result)
		}
		return
	}
	if got.Allowed || !strings.Contains(got.Result.Message, words) {
		t.Errorf("%s: %+v, not about %q", what, got.Result, words)
	}
}

// What the cluster has is asked of the API server when an object is written.
func TestPoolsAndRuntimes(t *testing.T) {
	api := cluster(t)
	api.Put(workerPools, workerPool("first"))
	api.Put(runtimes, &gardener.ContainerRuntime{ObjectMeta: metav1.ObjectMeta{Name: "here", Namespace: "team"}, Spec: gardener.ContainerRuntimeSpec{
		Type: "gvisor", BinaryPath: "/usr/bin", WorkerPool: gardener.ContainerRuntimeWorkerPool{Name: "a"},
	}})
	managed := class("gvisor")
	managed.Labels = map[string]string{"app.kubernetes.io/managed-by": "fairlead-operator"}
	api.Put(classes, managed)
	user := pod(of("gvisor"))
	user.Status.Phase = corev1.PodRunning
	api.Put(pods, user)
	r := start(t, api, options())
	got := r.ask("/validate-workerpools", about(t, workerPoolKind, workerPool("second"), nil))
	refused(t, "the same nodes", got, "WorkerPool first has the same one")
	if !strings.Contains(strings.Join(got.Warnings, " "), "there is no RuntimePayload gvisor") {
		t.Errorf("warnings: %q", got.Warnings)
	}
	twin := about(t, runtimeKind, &gardener.ContainerRuntime{ObjectMeta: metav1.ObjectMeta{Name: "twin", Namespace: "team"}, Spec: gardener.ContainerRuntimeSpec{
		Type: "gvisor", BinaryPath: "/usr/bin", WorkerPool: gardener.ContainerRuntimeWorkerPool{Name: "a", Selector: metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}},
	}}, nil)
	twin.Namespace = "team"
	refused(t, "a twin", r.ask("/validate-containerruntimes", twin), "team/here")
	deletion := about(t, classKind, nil, managed)
	deletion.Operation = admissionv1.Delete
	refused(t, "a class that a pod uses", r.ask("/validate-class-deletions", deletion), "1 pods use it")
	api.Vanish(workerPools)
	api.Vanish(runtimes)
	refused(t, "without a CRD", r.ask("/validate-workerpools", about(t, workerPoolKind, workerPool("second"), nil)), "")
	refused(t, "a shoot", r.ask("/validate-shoots", about(t, shootKind, aShoot(), nil)), "spec.provider.workers[0].machine.type")
}

// In a garden cluster it needs nothing of the cluster but its own certificate.
func TestGarden(t *testing.T) {
	api := cluster(t)
	o := options()
	o.Garden, o.Mutating = true, ""
	r := start(t, api, o)
	refused(t, "a shoot", r.ask("/validate-shoots", about(t, shootKind, aShoot(), nil)), "spec.provider.workers[0].machine.type")
	if code, text := r.send("/mutate-pods", "application/json", strings.NewReader("{}")); code != http.StatusNotFound {
		t.Errorf("%d %s", code, text)
	}
	for _, c := range api.Calls() {
		if c.Resource != "secrets" && c.Resource != "validatingwebhookconfigurations" {
			t.Errorf("it asks for %+v", c)
		}
	}
}
