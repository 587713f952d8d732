package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"fairlead.run/test/classtable"
)

// outcome is what became of a pod: its spec, or why it is refused.
type outcome struct {
	code    int
	spec    string
	message string
}

// table compares the webhook with Kubernetes' own plugin, for each class of the table.
func (h *hook) table(t *testing.T) {
	h.namespaceFor(t, "table", nil)
	t.Cleanup(func() {
		// The test's own context has ended by now.
		if err := node.RestartAPIServer(context.Background(), webhookFlags()...); err != nil {
			t.Error(err)
		}
	})
	t.Run("classes, webhook alone", TestClassTable)
	t.Run("pods", h.tablePods) // after which there are both
	t.Run("classes, webhook and plugin", TestClassTable)
	h.noPanics(t)
}

// tablePods has the same answers of the plugin alone, of both, and of the webhook alone.
func (h *hook) tablePods(t *testing.T) {
	classes, pods := h.tableClasses(t), map[string]object{}
	for _, class := range classes {
		maps.Copy(pods, podsOfClass(class))
	}
	h.cachesAll(t, classes)
	webhook := h.outcomes(t, pods)
	if err := node.RestartAPIServer(t.Context(), withPlugin(webhookFlags())...); err != nil {
		t.Fatal(err)
	}
	h.told(t)
	both := h.outcomes(t, pods)
	h.noPanics(t)
	kubectlInput(t, configurations(t), "delete", "-f", "-")
	plugin := h.pluginAlone(t, pods)
	kubectlInput(t, configurations(t), "apply", "-f", "-")
	h.told(t)

	refused := 0
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		want := plugin[name]
		if want.code >= http.StatusBadRequest {
			refused++
		}
		for who, got := range map[string]outcome{"webhook": webhook[name], "webhook and plugin": both[name]} {
			if got.code != want.code || got.spec != want.spec {
				t.Errorf("%s: the plugin has %d %s %s\nand %s has %d %s %s", name, want.code, want.message, want.spec, who, got.code, got.message, got.spec)
			}
		}
	}
	t.Logf("%d pods of %d classes, of which %d are refused", len(pods), len(classes), refused)
	if refused == 0 || refused == len(pods) {
		t.Errorf("%d of %d pods are refused, so little is compared", refused, len(pods))
	}
}

// withPlugin are flags without the one that takes the plugin away.
func withPlugin(flags []string) []string {
	return slices.DeleteFunc(slices.Clone(flags), func(f string) bool { return f == withoutPlugin })
}

// tableClasses makes the classes of the table that can be made, each of a name of its
// own: the table uses the same one again and again, and watches would lag behind.
func (h *hook) tableClasses(t *testing.T) (out []*nodev1.RuntimeClass) {
	t.Helper()
	for i, entry := range classtable.All() {
		if len(entry.AtServer()) > 0 {
			continue
		}
		class := entry.Class.DeepCopy()
		class.ResourceVersion, class.UID = "", ""
		class.GenerateName, class.Finalizers, class.OwnerReferences = "", nil, nil // the class has to go again, and not before
		if class.Name == "table" || class.Name == "" {
			class.Name = fmt.Sprintf("table-%d", i)
		}
		body := object{}
		text, err := json.Marshal(class)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &body); err != nil {
			t.Fatal(err)
		}
		h.classFor(t, body)
		out = append(out, class)
	}
	return out
}

// cachesAll waits until the webhook has heard of the classes, or a pod of one would be
// refused because it was asked for a moment before.
func (h *hook) cachesAll(t *testing.T, classes []*nodev1.RuntimeClass) {
	t.Helper()
	eventually(t, func() error {
		for _, line := range h.metrics(t, `fairlead_webhook_cache_objects{resource="runtimeclasses"}`) {
			var n int
			if _, err := fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &n); err == nil && n >= len(classes) {
				return nil
			}
		}
		return fmt.Errorf("the webhook has not heard of %d classes", len(classes))
	})
}

// podsOfClass are the pods that are compared, by what they are.
func podsOfClass(class *nodev1.RuntimeClass) map[string]object {
	pod := func(more object) object {
		all := object{"runtimeClassName": class.Name}
		maps.Copy(all, more)
		return gated("p", all)
	}
	selector, conflict := map[string]string{"pool": "mine"}, map[string]string{"pool": "mine"}
	tolerations := []corev1.Toleration{
		{Key: "a", Operator: "Exists"}, {Key: "a", Value: "b"}, {Key: "mine", Value: "c", Effect: "NoSchedule"}, {Key: "mine", Value: "c", Effect: "NoSchedule"},
	}
	overhead := corev1.ResourceList{}
	if class.Overhead != nil {
		overhead = class.Overhead.PodFixed
	}
	if s := class.Scheduling; s != nil {
		for key, value := range s.NodeSelector {
			selector[key], conflict[key] = value, "x"+value
		}
		tolerations = append(tolerations, s.Tolerations...)
	}
	of := func(what string) string { return class.Name + ", " + what }
	out := map[string]object{
		of("nothing else"):          pod(nil),
		of("its own selector"):      pod(object{"nodeSelector": selector}),
		of("another selector"):      pod(object{"nodeSelector": conflict}),
		of("tolerations"):           pod(object{"tolerations": tolerations}),
		of("another overhead"):      pod(object{"overhead": object{"cpu": "7"}}),
		of("a class that is not"):   gated("p", object{"runtimeClassName": "no-" + class.Name}),
		of("no class"):              gated("p", object{"tolerations": tolerations}),
		of("no class, an overhead"): gated("p", object{"overhead": object{"cpu": "7"}}),
	}
	if len(overhead) > 0 && unrounded(overhead) {
		out[of("the same overhead")] = pod(object{"overhead": overhead})
	}
	return out
}

// unrounded says that an API server does not round an overhead in a pod. Of one that it
// rounds the two differ on purpose: docs/design/0009-runtimeclass-library.md.
func unrounded(overhead corev1.ResourceList) bool {
	for _, amount := range overhead {
		if !amount.RoundUp(resource.Milli) {
			return false
		}
	}
	return true
}

// outcomes creates each pod, of which the API server keeps nothing.
func (h *hook) outcomes(t *testing.T, pods map[string]object) map[string]outcome {
	t.Helper()
	out := map[string]outcome{}
	for name, pod := range pods {
		got := h.ask(t, http.MethodPost, podsOf("table")+"?dryRun=All", pod)
		if got.code >= http.StatusInternalServerError {
			t.Fatalf("%s: %s", name, got)
		}
		if !got.ok() {
			out[name] = outcome{code: got.code, message: got.message()}
			continue
		}
		var made struct{ Spec json.RawMessage }
		if err := json.Unmarshal(got.body, &made); err != nil {
			t.Fatal(err)
		}
		out[name] = outcome{code: got.code, spec: string(made.Spec)}
	}
	return out
}

// pluginAlone are the outcomes when API servers have seen that the webhook is gone: it
// would have noted in a pod what it was that it injected or found there.
func (h *hook) pluginAlone(t *testing.T, pods map[string]object) map[string]outcome {
	t.Helper()
	eventually(t, func() error {
		before := h.requests(t)
		for range 10 {
			h.ask(t, http.MethodPost, podsOf("table")+"?dryRun=All", gated("p", nil))
		}
		if after := h.requests(t); after != before {
			return fmt.Errorf("the webhook is still asked: %s, and then %s", before, after)
		}
		return nil
	})
	before := h.requests(t)
	out := h.outcomes(t, pods)
	if after := h.requests(t); after != before {
		t.Errorf("the webhook was asked while the plugin should have been alone: %s, and then %s", before, after)
	}
	return out
}

// requests are the webhook's counts of what it was asked.
func (h *hook) requests(t *testing.T) string {
	t.Helper()
	return strings.Join(h.metrics(t, "fairlead_webhook_requests_total"), "\n")
}
