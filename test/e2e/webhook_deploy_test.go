package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"fairlead.run/test/images"
)

// The manifests of deploy as they are, with the image that docs/webhook.md says.
func TestWebhookDeployed(t *testing.T) {
	needWebhook(t)
	h := &hook{api: newAPI(t)}
	pushFairlead(t)
	if err := node.ServeAPIInPods(t.Context()); err != nil {
		t.Fatal(err)
	}
	applyFiles(t, "../../deploy/crds")
	kubectl(t, "wait", "--for=condition=Established", "crd/runtimeclasspolicies.fairlead.run")
	for _, file := range []string{"00-namespace", "10-rbac", "20-deployment"} {
		applyFiles(t, "../../deploy/webhook/"+file+".yaml")
	}
	kubectl(t, "rollout", "status", "-n", webhookNamespace, "deployment/fairlead-webhook", "--timeout", patience.String())
	applyFiles(t, "../../deploy/webhook/30-configurations.yaml")
	h.told(t)
	h.classFor(t, object{"metadata": object{"name": "tested"}, "handler": "test-handler", "overhead": object{"podFixed": object{"memory": "16Mi"}}})
	h.namespaceFor(t, "load", nil)
	eventually(t, func() error { return h.admits(t) })

	t.Run("replicas", h.replicas)
	t.Run("policies", func(t *testing.T) {
		h.policyFor(t, "only-tested", object{"namespaceSelector": only("load"), "allowedClasses": []string{"tested"}})
		h.refusal(t, "load", gated("a", nil), "only-tested")
	})
	t.Run("eviction", h.eviction)
	t.Run("rolling restart", h.rollingRestart)
	t.Run("Secret deleted", h.replicasLoseSecret)
	t.Run("rights", h.rights)
}

// pushFairlead has the registry of the cluster serve the image of the manifests.
func pushFairlead(t *testing.T) {
	t.Helper()
	files := map[string]images.File{}
	for _, name := range []string{"fairlead", "fairlead-operator"} {
		program, err := os.ReadFile(filepath.Join(*fairlead, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = images.File{Body: program, Mode: 0o755}
	}
	image := images.Spec{Layers: []images.Layer{{Files: files}}}
	// The name in the Deployment, as every runtime reads a name without a registry.
	if err := node.Push("library/fairlead:latest", image); err != nil {
		t.Fatal(err)
	}
}

// webhookPods are the replicas, the ready ones alone if one wants.
func (h *hook) webhookPods(t *testing.T, ready bool) (out []corev1.Pod) {
	t.Helper()
	var pods corev1.PodList
	h.must(t, http.MethodGet, podsOf(webhookNamespace), nil, &pods)
	for _, p := range pods.Items {
		isReady := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		if !ready || isReady && p.DeletionTimestamp == nil {
			out = append(out, p)
		}
	}
	return out
}

// Two replicas say that they are ready, and serve with what API servers are told to
// believe.
func (h *hook) replicas(t *testing.T) {
	pods := h.webhookPods(t, true)
	if len(pods) != 2 {
		t.Fatalf("%d replicas are ready", len(pods))
	}
	for _, p := range pods {
		code, text, err := get(t.Context(), "http://"+p.Status.PodIP+":8080/readyz")
		if err != nil || code != http.StatusOK {
			t.Errorf("%s: %v %d %s", p.Name, err, code, text)
		}
		if got := *p.Spec.SecurityContext.RunAsUser; got != 65532 {
			t.Errorf("%s runs as user %d", p.Name, got)
		}
	}
	for name, bundle := range h.bundles(t) {
		if !strings.Contains(bundle, "BEGIN CERTIFICATE") {
			t.Errorf("%s has no caBundle: %q", name, bundle)
		}
	}
}

// The budget lets one go, and no second one before there is another.
func (h *hook) eviction(t *testing.T) {
	var budget policyv1.PodDisruptionBudget
	eventually(t, func() error {
		h.must(t, http.MethodGet, "/apis/policy/v1/namespaces/fairlead-system/poddisruptionbudgets/fairlead-webhook", nil, &budget)
		if budget.Status.DisruptionsAllowed != 1 {
			return fmt.Errorf("the budget says %+v", budget.Status)
		}
		return nil
	})
	pods := h.webhookPods(t, true)
	if len(pods) != 2 {
		t.Fatalf("%d replicas are ready", len(pods))
	}
	evict := func(p corev1.Pod) answer {
		return h.ask(t, http.MethodPost, podsOf(webhookNamespace)+"/"+p.Name+"/eviction", object{
			"apiVersion": "policy/v1", "kind": "Eviction", "metadata": object{"name": p.Name, "namespace": p.Namespace},
		})
	}
	l := h.loading(t, "load", object{"runtimeClassName": "tested"})
	l.passes(t, fewPods)
	if got := evict(pods[0]); !got.ok() {
		t.Errorf("the first eviction: %s", got)
	}
	if got := evict(pods[1]); got.code != http.StatusTooManyRequests {
		t.Errorf("the second eviction: %s", got)
	}
	h.twoAgain(t, pods[0])
	l.passes(t, fewPods)
	l.stop()
	if passed, failed := l.counts(); len(failed) > 0 {
		t.Errorf("while a replica was evicted, %d pods were created, and %d were not: %q", passed, len(failed), failed[0])
	}
}

// twoAgain waits until two replicas are ready, and none of those that are to be gone
// is there.
func (h *hook) twoAgain(t *testing.T, gone ...corev1.Pod) {
	t.Helper()
	eventually(t, func() error {
		for _, p := range h.webhookPods(t, false) {
			if slices.ContainsFunc(gone, func(g corev1.Pod) bool { return g.UID == p.UID }) {
				return fmt.Errorf("replica %s is still there", p.Name)
			}
		}
		if n := len(h.webhookPods(t, true)); n != 2 {
			return fmt.Errorf("%d replicas are ready", n)
		}
		return nil
	})
}

// All replicas are replaced, and no pod is lost by it.
func (h *hook) rollingRestart(t *testing.T) {
	before := h.webhookPods(t, true)
	l := h.loading(t, "load", object{"runtimeClassName": "tested"})
	l.passes(t, fewPods)
	kubectl(t, "rollout", "restart", "-n", webhookNamespace, "deployment/fairlead-webhook")
	kubectl(t, "rollout", "status", "-n", webhookNamespace, "deployment/fairlead-webhook", "--timeout", patience.String())
	h.twoAgain(t, before...)
	l.passes(t, fewPods)
	l.stop()
	passed, failed := l.counts()
	t.Logf("%d pods were created during the restart", passed)
	if len(failed) > 0 {
		t.Errorf("%d pods were created, and %d were not: %q", passed, len(failed), failed[0])
	}
}

// The replicas look at the Secret at different times. Until the last has seen that there
// is another authority, API servers have to believe the old one, too.
func (h *hook) replicasLoseSecret(t *testing.T) {
	before := map[string]bool{}
	for _, p := range h.webhookPods(t, true) {
		before[served(t, p.Status.PodIP+":9443").SerialNumber.String()] = true
	}
	l := h.loading(t, "load", object{"runtimeClassName": "tested"})
	l.passes(t, fewPods)
	h.must(t, http.MethodDelete, webhookSecret, nil, nil)
	eventually(t, func() error {
		for _, p := range h.webhookPods(t, true) {
			if before[served(t, p.Status.PodIP+":9443").SerialNumber.String()] {
				return fmt.Errorf("replica %s serves as it did", p.Name)
			}
		}
		return nil
	})
	l.passes(t, fewPods)
	l.stop()
	passed, failed := l.counts()
	t.Logf("while another authority took over, %d pods were created", passed)
	if len(failed) > 0 {
		t.Errorf("while another authority took over, %d pods were created, and %d were not: %q", passed, len(failed), failed[0])
	}
}

// requests counts what the webhook has asked API servers for, and has what of that was
// refused.
func requests(t *testing.T) (asked int, refused []auditLine) {
	t.Helper()
	refused, err := auditLines(func(l auditLine) bool {
		if l.User.Username != "system:serviceaccount:fairlead-system:fairlead-webhook" {
			return false
		}
		asked++
		return l.ResponseStatus.Code == http.StatusForbidden || l.ResponseStatus.Code == http.StatusUnauthorized
	})
	if err != nil {
		t.Fatal(err)
	}
	return asked, refused
}

// The replicas are allowed what they ask for, and have nothing to complain of.
func (h *hook) rights(t *testing.T) {
	if asked, refused := requests(t); asked == 0 || len(refused) > 0 {
		t.Errorf("of %d requests of the webhook, these are refused: %+v", asked, refused)
	}
	h.content(t)
}

// content fails if a replica has something to complain of.
func (h *hook) content(t *testing.T) {
	t.Helper()
	for _, p := range h.webhookPods(t, true) {
		log := kubectl(t, "logs", "-n", webhookNamespace, p.Name)
		for line := range strings.Lines(log) {
			var entry struct{ Level, Msg string }
			if err := json.Unmarshal([]byte(line), &entry); err != nil {
				t.Errorf("%s: %v: %s", p.Name, err, line)
			}
			if entry.Level == "ERROR" || strings.Contains(line, "forbidden") {
				t.Errorf("%s: %s", p.Name, line)
			}
		}
		_, text, err := get(t.Context(), "http://"+p.Status.PodIP+":8080/metrics")
		if err != nil || !strings.Contains(text, "fairlead_webhook_panics_total 0\n") {
			t.Errorf("%s: %v: panics are not none:\n%s", p.Name, err, text)
		}
	}
}
