package webhook_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/api/v1alpha1"
	"fairlead.run/pkg/runtimeclass"
	"fairlead.run/pkg/runtimeclass/policy"
	"fairlead.run/test/apiserver"
)

// patched is the pod after what the webhook says.
func patched(t testing.TB, object, patch []byte) *corev1.Pod {
	t.Helper()
	out := object
	if len(patch) > 0 {
		operations, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			t.Fatal(err)
		}
		if out, err = operations.Apply(object); err != nil {
			t.Fatalf("apply %s to %s: %v", patch, object, err)
		}
	}
	p := &corev1.Pod{}
	if err := json.Unmarshal(out, p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestMutatePods(t *testing.T) {
	api := cluster(t)
	api.Put(classes, class("gvisor"))
	r := start(t, api, options())
	request := creating(t, pod(of("gvisor")))
	got := r.ask("/mutate-pods", request)
	if !got.Allowed || got.PatchType == nil || *got.PatchType != admissionv1.PatchTypeJSONPatch {
		t.Fatalf("answer: %+v", got)
	}
	p := patched(t, request.Object.Raw, got.Patch)
	if memory := p.Spec.Overhead.Memory().String(); memory != "64Mi" || p.Spec.NodeSelector["sandbox/kind"] != "gvisor" || len(p.Spec.Tolerations) != 1 || p.Annotations[runtimeclass.AnnotationInjected] == "" {
		t.Errorf("pod: %+v", p)
	}
	again := r.ask("/mutate-pods", creating(t, p))
	if !again.Allowed || again.Patch != nil || again.PatchType != nil {
		t.Errorf("the second time: %+v", again)
	}
	if got := r.ask("/validate-pods", creating(t, p)); !got.Allowed {
		t.Errorf("refused what was mutated: %+v", got.Result)
	}
}

func TestPodsThatAreLeftAlone(t *testing.T) {
	api := cluster(t)
	r := start(t, api, options())
	mirrored := creating(t, pod(of("gone"), noted(corev1.MirrorPodAnnotationKey, "x"), func(p *corev1.Pod) { p.Spec.NodeName = "node-1" }))
	mirrored.UserInfo.Groups = []string{"system:nodes"}
	system := creating(t, pod(of("gone")))
	system.Namespace = "kube-system"
	own := creating(t, pod(of("gone")))
	own.Namespace = "fairlead-system"
	deleted := creating(t, pod(of("gone")))
	deleted.Operation = admissionv1.Delete
	for name, request := range map[string]*admissionv1.AdmissionRequest{
		"mirror": mirrored, "kube-system": system, "own namespace": own, "no class": creating(t, pod()), "deletion": deleted,
	} {
		for _, path := range []string{"/mutate-pods", "/validate-pods"} {
			if got := r.ask(path, request); !got.Allowed || got.Patch != nil {
				t.Errorf("%s %s: %+v", path, name, got)
			}
		}
	}
	forged := creating(t, pod(of("gone"), noted(corev1.MirrorPodAnnotationKey, "x"), func(p *corev1.Pod) { p.Spec.NodeName = "node-1" }))
	if got := r.ask("/validate-pods", forged); got.Allowed {
		t.Error("an annotation of anybody's passes a pod by everything")
	}
}

func TestRefusal(t *testing.T) {
	api := cluster(t)
	api.Put(classes, class("gvisor"))
	r := start(t, api, options())
	got := r.ask("/mutate-pods", creating(t, pod(of("gvisr"))))
	if got.Allowed || got.Result.Code != http.StatusForbidden || got.Result.Reason != metav1.StatusReasonForbidden ||
		!strings.Contains(got.Result.Message, "did you mean gvisor?") || got.Result.Details.Causes[0].Field != "spec.runtimeClassName" {
		t.Errorf("answer: %+v", got.Result)
	}
	if line := r.metric(`fairlead_webhook_rejections_total{webhook="mutate-pods",reason="ClassMissing",class="_missing"}`); !strings.HasSuffix(line, " 1") {
		t.Errorf("metric: %s", line)
	}
	if line := r.metric(`fairlead_webhook_requests_total{webhook="mutate-pods",operation="CREATE",result="refused"}`); !strings.HasSuffix(line, " 1") {
		t.Errorf("metric: %s", line)
	}
	conflicting := pod(of("gvisor"), func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"sandbox/kind": "x"} })
	if got := r.ask("/mutate-pods", creating(t, conflicting)); got.Allowed || !strings.Contains(got.Result.Message, "sandbox/kind") {
		t.Errorf("answer: %+v", got.Result)
	}
}

// A class and a namespace that the watches have not told of are asked for.
func TestLaggingCaches(t *testing.T) {
	api := cluster(t)
	api.Put(policies, policyOf("p", func(s *v1alpha1.RuntimeClassPolicySpec) { s.DefaultClass = "kata" }))
	r := start(t, api, options())
	api.FailWith(func(c apiserver.Call) int {
		if c.Verb == "list" || c.Verb == "watch" {
			return http.StatusServiceUnavailable
		}
		return 0
	})
	api.Disconnect()
	api.Put(namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new", Labels: map[string]string{"tenant": "yes"}}})
	api.Put(classes, class("kata"))
	request := creating(t, pod(func(p *corev1.Pod) { p.Namespace = "new" }))
	request.Namespace = "new"
	got := r.ask("/mutate-pods", request)
	if p := patched(t, request.Object.Raw, got.Patch); runtimeclass.NameOf(p) != "kata" {
		t.Errorf("pod: %+v, %+v", p.Spec, got)
	}
	gone := creating(t, pod())
	gone.Namespace = "nowhere"
	if got := r.ask("/mutate-pods", gone); !got.Allowed {
		t.Errorf("a namespace that does not exist is the API server's to refuse: %+v", got.Result)
	}
	missing := creating(t, pod(of("gone")))
	for range 3 {
		if got := r.ask("/mutate-pods", missing); got.Allowed {
			t.Error("a class that does not exist passes")
		}
	}
	if n := api.Count(func(c apiserver.Call) bool { return c.Name == "gone" }); n == 0 {
		t.Error("the class was not asked for")
	}
	api.FailWith(func(apiserver.Call) int { return http.StatusForbidden })
	gone.Namespace = "elsewhere"
	if code, text := r.send("/mutate-pods", "application/json", bytes.NewReader(reviewOf(t, gone))); code != http.StatusServiceUnavailable {
		t.Errorf("%d %s", code, text)
	}
}

func TestUpdates(t *testing.T) {
	r := start(t, cluster(t), options())
	change := func(object, old *corev1.Pod, subresource string) *admissionv1.AdmissionResponse {
		request := about(t, podKind, object, old)
		request.Namespace, request.SubResource = "team", subresource
		return r.ask("/validate-pods", request)
	}
	if got := change(pod(of("gone"), noted("a", "b")), pod(of("gone")), ""); !got.Allowed {
		t.Errorf("a change of something else: %+v", got.Result)
	}
	if got := change(pod(of("a")), pod(of("b")), ""); got.Allowed {
		t.Error("a change of the class passes")
	}
	if got := change(pod(of("a"), func(p *corev1.Pod) { p.Spec.Overhead = class("x").Overhead.PodFixed }), pod(of("a")), "resize"); got.Allowed {
		t.Error("a change of the overhead passes")
	}
}

// A container that is added to a pod is held against what its handler can do.
func TestDebugContainers(t *testing.T) {
	api, yes := cluster(t), true
	lacking := class("gvisor")
	lacking.Annotations = map[string]string{policy.AnnotationLacks: "privileged"}
	api.Put(classes, lacking)
	r := start(t, api, options())
	debug := func(p *corev1.Pod) {
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", SecurityContext: &corev1.SecurityContext{Privileged: &yes}}}}
	}
	for subresource, allowed := range map[string]bool{"ephemeralcontainers": false, "resize": true} {
		request := about(t, podKind, pod(of("gvisor"), debug), pod(of("gvisor")))
		request.Namespace, request.SubResource = "team", subresource
		if got := r.ask("/validate-pods", request); got.Allowed != allowed || !allowed && !strings.Contains(got.Result.Message, "privileged") {
			t.Errorf("%s: %+v", subresource, got.Result)
		}
	}
}

// A policy that got into the cluster past its schema keeps pods out.
func TestUnusablePolicy(t *testing.T) {
	api := cluster(t)
	api.Put(policies, policyOf("broken", func(s *v1alpha1.RuntimeClassPolicySpec) { s.MinimumIsolation = "much" }))
	r := start(t, api, options())
	if got := r.ask("/validate-pods", creating(t, pod())); got.Allowed || !strings.Contains(got.Result.Message, "RuntimeClassPolicy broken cannot be used") {
		t.Errorf("answer: %+v", got.Result)
	}
	if line := r.metric("fairlead_webhook_policies_unusable"); !strings.HasSuffix(line, " 1") {
		t.Errorf("metric: %s", line)
	}
}

func TestPoliciesHold(t *testing.T) {
	api := cluster(t)
	api.Put(classes, class("gvisor"))
	long := strings.Repeat("a-long-name.", 10) + "end"
	api.Put(policies, policyOf("only", func(s *v1alpha1.RuntimeClassPolicySpec) { s.AllowedClasses = []string{"gvisor"} }))
	api.Put(policies, policyOf(long, func(s *v1alpha1.RuntimeClassPolicySpec) {
		s.Mode, s.MinimumIsolation = v1alpha1.ModeWarn, v1alpha1.IsolationVM
	}))
	r := start(t, api, options())
	if got := r.ask("/validate-pods", creating(t, pod())); got.Allowed || !strings.Contains(got.Result.Message, "only") {
		t.Errorf("answer: %+v", got.Result)
	}
	p := pod(of("gvisor"), func(p *corev1.Pod) {
		c := class("gvisor")
		p.Spec.Overhead, p.Spec.NodeSelector, p.Spec.Tolerations = c.Overhead.PodFixed, c.Scheduling.NodeSelector, c.Scheduling.Tolerations
	})
	got := r.ask("/validate-pods", creating(t, p))
	if !got.Allowed || len(got.Warnings) != 1 || len(got.AuditAnnotations) != 1 {
		t.Fatalf("answer: %+v", got)
	}
	for key := range got.AuditAnnotations {
		if len(key) > 63 {
			t.Errorf("the API server drops annotation %s", key)
		}
	}
	api.Vanish(policies)
	eventually(t, "no policies without their CRD", func() bool { return r.ask("/validate-pods", creating(t, pod())).Allowed })
	if line := r.metric(`fairlead_webhook_cache_absent{resource="runtimeclasspolicies"}`); !strings.HasSuffix(line, " 1") || r.Ready() != nil {
		t.Errorf("metric: %s, ready: %v", line, r.Ready())
	}
}

// Of many pods that are created at once, as many pass as the quota has room for;
// a dry run takes none of it.
func TestQuota(t *testing.T) {
	api := cluster(t)
	api.Put(policies, policyOf("few", func(s *v1alpha1.RuntimeClassPolicySpec) {
		s.Quota = []v1alpha1.ClassQuota{{ClassName: "", Pods: 5}}
	}))
	there := pod()
	there.UID = "there"
	there.Name = "there"
	api.Put(pods, there)
	r := start(t, api, options())
	dry := true
	for range 10 {
		request := creating(t, pod(func(p *corev1.Pod) { p.UID = "dry" }))
		request.DryRun = &dry
		if got := r.ask("/validate-pods", request); !got.Allowed {
			t.Fatalf("dry run: %+v", got.Result)
		}
	}
	var allowed atomic.Int32
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			if r.ask("/validate-pods", creating(t, pod(func(p *corev1.Pod) { p.UID = uid(i) }))).Allowed {
				allowed.Add(1)
			}
		})
	}
	all.Wait()
	if n := allowed.Load(); n != 4 {
		t.Errorf("%d of 4 passed", n)
	}
}

// A pod counts once, be it reserved or there, and not at all when it is gone.
func TestQuotaFollowsPods(t *testing.T) {
	api := cluster(t)
	api.Put(policies, policyOf("one", func(s *v1alpha1.RuntimeClassPolicySpec) {
		s.Quota = []v1alpha1.ClassQuota{{ClassName: "", Pods: 1}}
	}))
	r := start(t, api, options())
	first := pod(func(p *corev1.Pod) { p.UID = "first" })
	second := creating(t, pod(func(p *corev1.Pod) { p.UID = "second" }))
	if got := r.ask("/validate-pods", creating(t, first)); !got.Allowed {
		t.Fatalf("first: %+v", got.Result)
	}
	if got := r.ask("/validate-pods", second); got.Allowed {
		t.Fatal("two of one")
	}
	api.Put(pods, first)
	eventually(t, "the pod", func() bool {
		return strings.HasSuffix(r.metric(`fairlead_webhook_cache_objects{resource="pods"}`), " 1")
	})
	if got := r.ask("/validate-pods", second); got.Allowed {
		t.Fatal("two of one, when the first is there")
	}
	api.Delete(pods, "team/web")
	eventually(t, "room", func() bool { return r.ask("/validate-pods", second).Allowed })
}

func TestTemplates(t *testing.T) {
	api := cluster(t)
	api.Put(classes, class("gvisor"))
	r := start(t, api, options())
	template := func(p *corev1.Pod) map[string]any { return map[string]any{"metadata": p.ObjectMeta, "spec": p.Spec} }
	deployment := func(p *corev1.Pod) *admissionv1.AdmissionRequest {
		object := map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{"template": template(p)}}
		request := about(t, metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, object, nil)
		request.Namespace = "team"
		return request
	}
	if got := r.ask("/validate-templates", deployment(pod(of("gvisor")))); !got.Allowed || len(got.Warnings) != 0 {
		t.Errorf("good: %+v", got)
	}
	if got := r.ask("/validate-templates", deployment(pod(of("gone")))); !got.Allowed || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "gone") {
		t.Errorf("bad: %+v", got)
	}
	cron := map[string]any{"kind": "CronJob", "spec": map[string]any{"jobTemplate": map[string]any{"spec": map[string]any{"template": template(pod(of("gone")))}}}}
	request := about(t, metav1.GroupVersionKind{Group: "batch", Version: "v1", Kind: "CronJob"}, cron, nil)
	request.Namespace = "team"
	if got := r.ask("/validate-templates", request); !got.Allowed || len(got.Warnings) != 1 {
		t.Errorf("cron job: %+v", got)
	}
	yes := true
	owned := map[string]any{
		"kind": "ReplicaSet", "metadata": metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Name: "d", Controller: &yes}}},
		"spec": map[string]any{"template": template(pod(of("gone")))},
	}
	request = about(t, metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}, owned, nil)
	request.Namespace = "team"
	if got := r.ask("/validate-templates", request); !got.Allowed || len(got.Warnings) != 0 {
		t.Errorf("of a controller: %+v", got)
	}
}
