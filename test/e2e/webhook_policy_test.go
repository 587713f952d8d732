package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"fairlead.run/test/classtable"
	"fairlead.run/test/e2e/cluster"
)

// policyFor makes a policy that goes with the test.
func (h *hook) policyFor(t *testing.T, name string, spec object) answer {
	t.Helper()
	got := h.ask(t, http.MethodPost, policyPath, object{
		"apiVersion": "fairlead.run/v1alpha1", "kind": "RuntimeClassPolicy", "metadata": object{"name": name}, "spec": spec,
	})
	if !got.ok() {
		t.Fatalf("make policy %s: %s", name, got)
	}
	t.Cleanup(func() {
		if got, err := h.do(context.Background(), http.MethodDelete, policyPath+"/"+name, nil); err != nil || !got.ok() && got.code != http.StatusNotFound {
			t.Errorf("delete policy %s: %v %s", name, err, got)
		}
	})
	return got
}

// refusal waits until the webhook, to which its watch tells a change, refuses a pod
// for a reason.
func (h *hook) refusal(t *testing.T, namespace string, pod object, says ...string) {
	t.Helper()
	eventually(t, func() error {
		got := h.ask(t, http.MethodPost, podsOf(namespace)+"?dryRun=All", pod)
		if got.code != http.StatusForbidden {
			return fmt.Errorf("the pod is not refused: %s", got)
		}
		for _, text := range says {
			if !strings.Contains(got.message(), text) {
				return fmt.Errorf("the refusal does not say %q: %s", text, got.message())
			}
		}
		return nil
	})
}

// only selects a namespace by its name.
func only(namespace string) object {
	return object{"matchLabels": object{"kubernetes.io/metadata.name": namespace}}
}

// Policies hold in a real cluster.
func (h *hook) policies(t *testing.T) {
	h.classFor(t, object{"metadata": object{"name": "tested"}, "handler": cluster.TestHandler, "overhead": object{"podFixed": object{"memory": "16Mi"}}})
	h.classFor(t, object{"metadata": object{"name": "plain"}, "handler": "runc"})
	t.Run("default", h.defaultClass)
	t.Run("refused", func(t *testing.T) {
		h.namespaceFor(t, "allowing", nil)
		h.policyFor(t, "allow-tested", object{"namespaceSelector": only("allowing"), "allowedClasses": []string{"tested"}})
		h.refusal(t, "allowing", gated("a", object{"runtimeClassName": "plain"}), "allow-tested", "plain", "tested")
		h.refusal(t, "allowing", gated("a", nil), "allow-tested")
		h.must(t, http.MethodPost, podsOf("allowing"), gated("a", object{"runtimeClassName": "tested"}), nil)
		h.must(t, http.MethodPost, podsOf("default")+"?dryRun=All", gated("a", object{"runtimeClassName": "plain"}), nil)
	})
	t.Run("isolation", func(t *testing.T) {
		h.namespaceFor(t, "isolated", nil)
		h.policyFor(t, "isolate", object{"namespaceSelector": only("isolated"), "minimumIsolation": "sandbox"})
		h.refusal(t, "isolated", gated("a", object{"runtimeClassName": "plain"}), "isolate", "sandbox")
	})
	t.Run("quota", h.quota)
	t.Run("warn and audit", h.warnAndAudit)
	t.Run("static pod", func(t *testing.T) {
		// What a kubelet runs by a file runs, whatever a policy says; it is only shown.
		h.policyFor(t, "not-here", object{"namespaceSelector": only("default"), "allowedClasses": []string{"tested"}})
		h.refusal(t, "default", gated("a", nil), "not-here")
		TestStaticPod(t)
	})
	t.Run("debug", h.debug)
	t.Run("table", h.policyTable)
	t.Run("templates", func(t *testing.T) {
		labels := object{"matchLabels": object{"a": "b"}}
		got := h.ask(t, http.MethodPost, "/apis/apps/v1/namespaces/default/deployments?dryRun=All", object{
			"metadata": object{"name": "d"},
			"spec": object{"selector": labels, "template": object{
				"metadata": object{"labels": object{"a": "b"}}, "spec": gated("", object{"runtimeClassName": "testd"})["spec"],
			}},
		})
		if text := strings.Join(got.warnings, "\n"); !got.ok() || !strings.Contains(text, "testd") || !strings.Contains(text, "tested") {
			t.Errorf("%s, with warnings %q", got, got.warnings)
		}
	})
	h.noPanics(t)
}

// A pod that names no class gets one, and runs with its handler.
func (h *hook) defaultClass(t *testing.T) {
	h.namespaceFor(t, "defaulting", object{"trust": "low"})
	h.policyFor(t, "default-tested", object{"namespaceSelector": object{"matchLabels": object{"trust": "low"}}, "defaultClass": "tested"})
	var pod struct {
		Metadata struct{ Annotations map[string]string }
		Spec     struct {
			RuntimeClassName string
			Overhead         map[string]string
		}
	}
	eventually(t, func() error {
		got := h.ask(t, http.MethodPost, podsOf("defaulting")+"?dryRun=All", gated("a", nil))
		if err := json.Unmarshal(got.body, &pod); err != nil || !got.ok() {
			return fmt.Errorf("%w %s", err, got)
		}
		if pod.Spec.RuntimeClassName != "tested" || pod.Spec.Overhead["memory"] != "16Mi" {
			return fmt.Errorf("the pod has class %q and overhead %q", pod.Spec.RuntimeClassName, pod.Spec.Overhead)
		}
		return nil
	})
	if note := pod.Metadata.Annotations["fairlead.run/runtimeclass-injected"]; !strings.Contains(note, "default-tested") {
		t.Errorf("the pod does not say what chose its class: %q", note)
	}
	apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: runs, namespace: defaulting}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: %q, args: [pause]}]
`, imageOf(t, "agnhost")))
	kubectl(t, "wait", "-n", "defaulting", "--for=condition=Ready", "pod/runs", "--timeout", patience.String())
	want(t, kubectl(t, "get", "pod", "runs", "-n", "defaulting", "-o", "jsonpath={.spec.runtimeClassName}"), "tested")
}

// Of many that are created at once, no more pods of a class pass than may; the room of
// one that is gone is free again.
func (h *hook) quota(t *testing.T) {
	const most, tries = 3, 20
	h.namespaceFor(t, "counting", nil)
	h.policyFor(t, "count", object{"namespaceSelector": only("counting"), "quota": []object{{"className": "tested", "pods": most}, {"className": "plain", "pods": 0}}})
	h.refusal(t, "counting", gated("a", object{"runtimeClassName": "plain"}), "count", "plain")
	var all sync.WaitGroup
	var passed atomic.Int32
	for i := range tries {
		all.Go(func() {
			got, err := h.do(t.Context(), http.MethodPost, podsOf("counting"), gated(fmt.Sprintf("many-%d", i), object{"runtimeClassName": "tested"}))
			switch {
			case err != nil:
				t.Error(err)
			case got.ok():
				passed.Add(1)
			case got.code != http.StatusForbidden || !strings.Contains(got.message(), "count"):
				t.Errorf("refused otherwise: %s", got)
			}
		})
	}
	all.Wait()
	if got := passed.Load(); got != most {
		t.Errorf("%d pods passed, and %d may", got, most)
	}
	there := strings.Fields(kubectl(t, "get", "pods", "-n", "counting", "-o", "name"))
	if len(there) != most {
		t.Fatalf("there are pods %q", there)
	}
	kubectl(t, "delete", "-n", "counting", there[0])
	eventually(t, func() error {
		got := h.ask(t, http.MethodPost, podsOf("counting"), gated("another", object{"runtimeClassName": "tested"}))
		if !got.ok() {
			return errors.New(got.String())
		}
		return nil
	})
	h.refusal(t, "counting", gated("a", object{"runtimeClassName": "tested"}), "count")
}

// A policy that does not enforce admits the pod, and says so to its author or to the
// audit log.
func (h *hook) warnAndAudit(t *testing.T) {
	h.namespaceFor(t, "lenient", nil)
	rule := func(mode string) object {
		return object{"namespaceSelector": only("lenient"), "mode": mode, "allowedClasses": []string{"tested"}}
	}
	h.policyFor(t, "only-warn", rule("warn"))
	h.policyFor(t, "only-audit", rule("audit"))
	bad := object{"runtimeClassName": "plain"}
	eventually(t, func() error {
		got := h.ask(t, http.MethodPost, podsOf("lenient")+"?dryRun=All", gated("warned", bad))
		if text := strings.Join(got.warnings, "\n"); !got.ok() || !strings.Contains(text, "only-warn") || strings.Contains(text, "only-audit") {
			return fmt.Errorf("%s, with warnings %q", got, got.warnings)
		}
		return nil
	})
	eventually(t, func() error {
		h.must(t, http.MethodPost, podsOf("lenient")+"?dryRun=All", gated("audited", bad), nil)
		lines, err := auditLines(func(l auditLine) bool { return l.ObjectRef.Namespace == "lenient" })
		if err != nil {
			return err
		}
		for _, policy := range []string{"only-warn", "only-audit"} {
			if !slices.ContainsFunc(lines, func(l auditLine) bool { return l.Annotations["pods.validate.fairlead.run/"+policy] != "" }) {
				return fmt.Errorf("policy %s is not in the audit log: %+v", policy, lines)
			}
		}
		return nil
	})
	if got := h.ask(t, http.MethodPost, podsOf("lenient")+"?dryRun=All", gated("a", object{"runtimeClassName": "tested"})); !got.ok() || len(got.warnings) > 0 {
		t.Errorf("a pod that is as it should be: %s, with warnings %q", got, got.warnings)
	}
}

// A container that is added to a pod may not ask for what the handler cannot do.
func (h *hook) debug(t *testing.T) {
	h.classFor(t, object{"metadata": object{"name": "limited", "annotations": object{"fairlead.run/lacks": "privileged"}}, "handler": cluster.TestHandler})
	h.namespaceFor(t, "debugged", nil)
	h.must(t, http.MethodPost, podsOf("debugged"), gated("a", object{"runtimeClassName": "limited"}), nil)
	with := func(privileged bool) answer {
		return h.ask(t, http.MethodPatch, podsOf("debugged")+"/a/ephemeralcontainers?dryRun=All", object{"spec": object{"ephemeralContainers": []object{
			{"name": "debug", "image": "registry.invalid/e2e/none:1", "securityContext": object{"privileged": privileged}},
		}}})
	}
	if got := with(true); got.code != http.StatusForbidden || !strings.Contains(got.message(), "ephemeralContainers[debug].securityContext.privileged") {
		t.Errorf("a privileged container: %s", got)
	}
	if got := with(false); !got.ok() {
		t.Errorf("a container: %s", got)
	}
}

// auditLine is what is read of the audit log.
type auditLine struct {
	Verb           string
	User           struct{ Username string }
	ObjectRef      struct{ APIGroup, Resource, Subresource, Namespace, Name string }
	ResponseStatus struct{ Code int }
	Annotations    map[string]string
}

// auditLines are the lines of the audit log that fit. The last may still be written.
func auditLines(fits func(auditLine) bool) (out []auditLine, err error) {
	text, err := os.ReadFile(auditLog())
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		var l auditLine
		if json.Unmarshal([]byte(line), &l) == nil && fits(l) {
			out = append(out, l)
		}
	}
	return out, nil
}

// What a schema cannot say of a policy, the webhook refuses.
func (h *hook) policyTable(t *testing.T) {
	for _, c := range classtable.Policies() {
		t.Run(c.Name, func(t *testing.T) {
			got := h.ask(t, http.MethodPost, policyPath+"?dryRun=All", c.Policy)
			if got.ok() != (len(c.Faults) == 0) || got.code >= http.StatusInternalServerError {
				t.Errorf("the table has faults %q: %s", c.Faults, got)
			}
			for _, field := range c.Faults {
				// A CRD's rule about two fields names the object that has both.
				if parent, _, _ := strings.Cut(field, "["); !strings.Contains(got.message(), parent) {
					t.Errorf("the refusal does not name %s: %s", field, got.message())
				}
			}
		})
	}
}
