package webhook_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	admissionv1 "k8s.io/api/admission/v1"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/webhook"
	"fairlead.run/test/apiserver"
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
	immutable := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "immutable", Labels: map[string]string{"of": "immutable"}}}
	immutable.Status.NodeInfo.OSImage = "Fedora CoreOS 42.20250803.3.0"
	api.Put(nodes, immutable)
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
	below := twin.DeepCopy()
	below.Object.Raw = bytes.ReplaceAll(below.Object.Raw, []byte(`"name":"a","selector":{"matchLabels":{"a":"b"}}`), []byte(`"name":"c","selector":{"matchLabels":{"of":"immutable"}}`))
	refused(t, "a read-only folder", r.ask("/validate-containerruntimes", below), "spec.binaryPath: Invalid value: \"/usr/bin\": node immutable has Fedora CoreOS 42.20250803.3.0, where /usr is read-only; give another folder, as in /var/bin")
	deletion := about(t, classKind, nil, managed)
	deletion.Operation = admissionv1.Delete
	refused(t, "a class that a pod uses", r.ask("/validate-class-deletions", deletion), "1 pods use it")
	api.Vanish(workerPools)
	api.Vanish(runtimes)
	refused(t, "without a CRD", r.ask("/validate-workerpools", about(t, workerPoolKind, workerPool("second"), nil)), "")
	refused(t, "a shoot", r.ask("/validate-shoots", about(t, shootKind, aShoot(), nil)), "spec.provider.workers[0].machine.type")
}

// The age of kubelets is seen from the nodes of the cache, or else from the API server.
func TestAgeOfKubelets(t *testing.T) {
	api := cluster(t)
	old := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "old", Labels: map[string]string{"group": "old"}}}
	old.Status.NodeInfo.KubeletVersion = "v1.13.9"
	api.Put(nodes, old)
	version := ""
	api.Intercept(func(_ apiserver.Call, w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/version" || version == "" {
			return false
		}
		_, _ = w.Write([]byte(version))
		return true
	})
	r := start(t, api, options())
	ask := func(group string) *admissionv1.AdmissionResponse {
		p := workerPool("a")
		p.Spec.NodeSelector["group"] = group
		return r.ask("/validate-workerpools", about(t, workerPoolKind, p, nil))
	}
	refused(t, "old nodes", ask("old"), `spec.kubernetesVersion: Invalid value: "v1.13.9"`)
	for text, want := range map[string]string{"": "is not known", "{": "is not known", `{"major":"1","minor":"37","gitVersion":"v1.37.2"}`: ""} {
		version = text
		got := ask("none")
		refused(t, "no nodes", got, "")
		if said := strings.Join(got.Warnings, " "); want != "" && !strings.Contains(said, want) || want == "" && strings.Contains(said, "kubernetesVersion") {
			t.Errorf("with %q it warns %q", text, said)
		}
	}
	version = `{"gitVersion":"v1.13.9"}`
	refused(t, "an old API server", ask("none"), `spec.kubernetesVersion: Invalid value: "v1.13.9"`)
}

var (
	cloudProfiles = apiserver.Resource{Path: "apis/core.gardener.cloud/v1beta1/cloudprofiles", Kind: "CloudProfile"}
	ownProfiles   = apiserver.Resource{Path: "apis/core.gardener.cloud/v1beta1/namespacedcloudprofiles", Kind: "NamespacedCloudProfile", Namespaced: true}
)

// images are the machine images of a profile: one version of ubuntu with these types.
func images(types ...string) map[string]any {
	var all []any
	for _, t := range types {
		all = append(all, map[string]any{"type": t})
	}
	return map[string]any{"machineImages": []any{map[string]any{"name": "ubuntu", "versions": []any{
		map[string]any{"version": "24.4.0", "cri": []any{map[string]any{"name": "containerd", "containerRuntimes": all}}},
	}}}}
}

// onProfile is a shoot with gvisor, of a profile of some kind.
func onProfile(kind, name string) map[string]any {
	return map[string]any{"spec": map[string]any{
		"cloudProfile": map[string]any{"kind": kind, "name": name},
		"provider": map[string]any{"type": "aws", "workers": []any{map[string]any{
			"name": "w", "machine": map[string]any{"image": map[string]any{"name": "ubuntu", "version": "24.4.0"}},
			"cri": map[string]any{"name": "containerd", "containerRuntimes": []any{map[string]any{"type": "gvisor"}}},
		}}},
	}}
}

// garden is a webhook in a garden cluster with the profiles "with" and "without".
func garden(t *testing.T) (*apiserver.Server, func(object, old any) *admissionv1.AdmissionResponse) {
	api := cluster(t)
	api.Serve(cloudProfiles)
	api.Serve(ownProfiles)
	api.Put(cloudProfiles, map[string]any{"metadata": map[string]any{"name": "with"}, "spec": images("gvisor")})
	api.Put(cloudProfiles, map[string]any{"metadata": map[string]any{"name": "without"}, "spec": images()})
	api.Put(ownProfiles, map[string]any{"metadata": map[string]any{"name": "merged", "namespace": "garden-team"}, "spec": images(), "status": map[string]any{"cloudProfileSpec": images("gvisor")}})
	o := options()
	o.Garden, o.Mutating = true, ""
	r := start(t, api, o)
	return api, func(object, old any) *admissionv1.AdmissionResponse {
		q := about(t, shootKind, object, old)
		q.Namespace = "garden-team"
		return r.ask("/validate-shoots", q)
	}
}

func TestGardenProfiles(t *testing.T) {
	api, ask := garden(t)
	refused(t, "an image with it", ask(onProfile("", "with"), nil), "")
	refused(t, "an image without it", ask(onProfile("CloudProfile", "without"), nil), "spec.provider.workers[0].cri.containerRuntimes[0].type: Invalid value: \"gvisor\": CloudProfile without does not have it")
	refused(t, "a profile of the project", ask(onProfile("NamespacedCloudProfile", "merged"), nil), "")
	for what, shoot := range map[string]map[string]any{
		"one that is not there": onProfile("", "gone"), "a kind that is none": onProfile("Secret", "with"), "a name that is a path": onProfile("", "../secrets/a"),
	} {
		got := ask(shoot, nil)
		refused(t, what, got, "")
		if !strings.Contains(strings.Join(got.Warnings, " "), "nobody looked whether its machine images") {
			t.Errorf("%s: %q", what, got.Warnings)
		}
	}
	for _, c := range api.Calls() {
		if c.Resource == "secrets" && c.Namespace != "fairlead-system" {
			t.Errorf("it asks for %+v", c)
		}
	}
}

// What a profile said a moment ago refuses nobody: it is read anew before.
func TestGardenProfilesAreReadAnew(t *testing.T) {
	api, ask := garden(t)
	refused(t, "an image without it", ask(onProfile("", "without"), nil), "does not have it")
	api.Put(cloudProfiles, map[string]any{"metadata": map[string]any{"name": "without"}, "spec": images("gvisor")})
	refused(t, "an image that has it by now", ask(onProfile("", "without"), nil), "")
	before := api.Count(func(c apiserver.Call) bool { return c.Resource == "cloudprofiles" })
	refused(t, "one that does not change", ask(onProfile("", "other"), onProfile("", "other")), "")
	if n := api.Count(func(c apiserver.Call) bool { return c.Resource == "cloudprofiles" }); n != before {
		t.Errorf("a shoot that changes nothing took %d reads", n-before)
	}
}

// A garden that does not answer is no answer: the configuration says what follows.
func TestGardenIsAway(t *testing.T) {
	for code, words := range map[int]string{500: "get CloudProfile with", 403: "the role of this webhook needs get of cloudprofiles"} {
		api := cluster(t)
		api.Serve(cloudProfiles)
		o := options()
		o.Garden, o.Mutating = true, ""
		r := start(t, api, o)
		api.FailWith(func(c apiserver.Call) int {
			if c.Resource == "cloudprofiles" {
				return code
			}
			return 0
		})
		got, text := r.send("/validate-shoots", "application/json", bytes.NewReader(reviewOf(t, about(t, shootKind, onProfile("", "with"), nil))))
		if got != http.StatusServiceUnavailable || !strings.Contains(string(text), words) {
			t.Errorf("%d: %d %s", code, got, text)
		}
		small := aShoot()
		small["spec"].(map[string]any)["cloudProfileName"] = "with"
		// The profile might say otherwise of its machine type.
		got, text = r.send("/validate-shoots", "application/json", bytes.NewReader(reviewOf(t, about(t, shootKind, small, nil))))
		if got != http.StatusServiceUnavailable || !strings.Contains(string(text), words) {
			t.Errorf("%d: %d %s", code, got, text)
		}
		small["spec"].(map[string]any)["kubernetes"] = map[string]any{"version": "1.13.0"}
		refused(t, "what is wrong by itself", r.ask("/validate-shoots", about(t, shootKind, small, nil)), "spec.kubernetes.version")
	}
}

// What a profile states of machine types goes before what is known of their names, by the
// name that the landscape has for it.
func TestGardenCapabilities(t *testing.T) {
	for flag, want := range map[string]struct{ small, metal string }{
		webhook.Defaults().Capability: {"", "CloudProfile able gives it the capability nestedVirtualization: unsupported, and not supported"},
		"machineHostType=metal":       {"CloudProfile able gives it the capability machineHostType: virtual, and not metal", ""},
		"":                            {"machines of type m5.large cannot run virtual machines", ""},
	} {
		api := cluster(t)
		api.Serve(cloudProfiles)
		stated := func(name, nested, host string) any {
			return map[string]any{"name": name, "capabilities": map[string]any{"nestedVirtualization": []any{nested}, "machineHostType": []any{host}}}
		}
		put := func(nested string) {
			spec := images("kata-containers")
			spec["machineTypes"] = []any{stated("m5.large", nested, "virtual"), stated("m5.metal", "unsupported", "metal")}
			api.Put(cloudProfiles, map[string]any{"metadata": map[string]any{"name": "able"}, "spec": spec})
		}
		put("supported")
		o := options()
		o.Garden, o.Mutating, o.Capability = true, "", flag
		r := start(t, api, o)
		shoot := func(machine string) any {
			s := onProfile("", "able")
			w := s["spec"].(map[string]any)["provider"].(map[string]any)["workers"].([]any)[0].(map[string]any)
			w["machine"].(map[string]any)["type"] = machine
			w["cri"].(map[string]any)["containerRuntimes"] = []any{map[string]any{"type": "kata-containers"}}
			return s
		}
		ask := func(machine string) *admissionv1.AdmissionResponse {
			return r.ask("/validate-shoots", about(t, shootKind, shoot(machine), nil))
		}
		refused(t, flag+": a small machine", ask("m5.large"), want.small)
		refused(t, flag+": a whole machine", ask("m5.metal"), want.metal)
		if flag != webhook.Defaults().Capability {
			continue
		}
		// What it said a moment ago may admit, and refuses nobody.
		put("unsupported")
		refused(t, "a moment later", ask("m5.large"), "")
		moved := r.ask("/validate-shoots", about(t, shootKind, shoot("m5.metal"), shoot("m5.large")))
		refused(t, "another machine", moved, "machine.type")
		refused(t, "after that", ask("m5.large"), "nestedVirtualization: unsupported")
		put("supported")
		refused(t, "and by now it can", ask("m5.large"), "")
	}
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
