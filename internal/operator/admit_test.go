package operator

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/internal/operator/containerruntime"
	"fairlead.run/internal/operator/osc"
	"fairlead.run/internal/operator/plugins"
)

// admitted is what is stored of an OperatingSystemConfig that somebody writes.
func admitted(t *testing.T, by client.Client, now, before *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	text, err := json.Marshal(now.Object)
	if err != nil {
		t.Fatal(err)
	}
	r := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Namespace: now.GetNamespace(), Name: now.GetName(), Object: runtime.RawExtension{Raw: text}}}
	if before != nil {
		if r.OldObject.Raw, err = json.Marshal(before.Object); err != nil {
			t.Fatal(err)
		}
	}
	answer := containerruntime.NewAdmission(by, plugins.All()).Handle(t.Context(), r)
	if !answer.Allowed {
		t.Fatalf("%s is refused: %v", now.GetName(), answer.Result)
	}
	patch, err := json.Marshal(answer.Patches)
	if err != nil {
		t.Fatal(err)
	}
	steps, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatal(err)
	}
	if text, err = steps.Apply(text); err != nil {
		t.Fatal(err)
	}
	return of(t, string(text))
}

// has are the versions of gvisor that an OperatingSystemConfig has files of, and those
// that its tables name.
func has(u *unstructured.Unstructured) (files, tables []string) {
	const base = "/var/bin/gvisor/"
	all, _, _ := unstructured.NestedSlice(u.Object, "spec", "files")
	for _, f := range all {
		if at, ours := strings.CutPrefix(f.(map[string]any)["path"].(string), base); ours && !strings.HasPrefix(at, "etc-") {
			version, _, _ := strings.Cut(at, "-")
			files = append(files, version)
		}
	}
	all, _, _ = unstructured.NestedSlice(u.Object, "spec", "criConfig", "containerd", "plugins")
	for _, p := range all {
		if p.(map[string]any)["op"] == "remove" {
			continue
		}
		typ, _, _ := unstructured.NestedString(p.(map[string]any), "values", "runtime_type")
		version, _, _ := strings.Cut(strings.TrimPrefix(typ, base), "-")
		tables = append(tables, version)
	}
	return files, tables
}

// gardenlet writes an OperatingSystemConfig without entries, and may read it before the
// operator has put them in again: they are in it when it is stored.
func TestEntriesAreThereFromTheBeginning(t *testing.T) {
	w, act := seed(t, "gvisor")
	release, c := aPayload("gvisor", "1", "runsc"), inShoot("a")
	w.create(release, config(t, "now", "reconcile", "a"), c)
	act(c.Name)
	w.change(release, func() { release.Spec = aPayload("gvisor", "2", "runsc").Spec })
	act(c.Name)
	check := func(what string, u *unstructured.Unstructured, files, tables []string) {
		t.Helper()
		f, p := has(u)
		if slices.Sort(f); !slices.Equal(f, files) || !slices.Equal(p, tables) {
			t.Errorf("%s: files of %q, not %q, and tables of %q, not %q", what, f, files, p, tables)
		}
	}
	fresh := func() *unstructured.Unstructured { return config(t, "now", "reconcile", "a") }
	stored := fresh()
	w.get(stored)
	again := admitted(t, w.client, fresh(), stored)
	check("written anew", again, []string{"1", "2"}, []string{"2"})
	if text, _ := json.Marshal(again.Object); !strings.Contains(string(text), "/etc/theirs") || !strings.Contains(string(text), "sandboxImage") {
		t.Errorf("what is Gardener's is lost: %s", text)
	}
	check("a second time", admitted(t, w.client, again, fresh()), []string{"1", "2"}, []string{"2"})
	check("for machines that come", admitted(t, w.client, config(t, "next", "reconcile", "a"), nil), []string{"2"}, []string{"2"})
	check("for the first start", admitted(t, w.client, config(t, "birth", "provision", "a"), nil), nil, nil)
	check("of another pool", admitted(t, w.client, config(t, "others", "reconcile", "b"), nil), nil, nil)
	ordered := fresh()
	ordered.SetAnnotations(map[string]string{gardener.AnnotationOperation: gardener.OrderReconcile})
	check("with a spec that is the same", admitted(t, w.client, ordered, fresh()), nil, nil)
	leaving := fresh()
	leaving.SetFinalizers([]string{"x"})
	leaving.Object["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-02T03:04:05Z"
	check("on its way out", admitted(t, w.client, leaving, nil), nil, nil)
	bare := fresh()
	unstructured.RemoveNestedField(bare.Object, "spec", "criConfig")
	check("without containerd", admitted(t, w.client, bare, nil), nil, nil)

	// What is wrong with a release, or with the API server, takes nothing off machines.
	w.change(release, func() { release.Spec.Manifest.Architectures = []string{"s390x"} })
	check("of a release for other machines", admitted(t, w.client, fresh(), stored), []string{"1", "2"}, []string{"2"})
	check("of which nothing is known", admitted(t, w.client, config(t, "next", "reconcile", "a"), nil), nil, nil)
	away := interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return errors.New("away")
	}})
	check("while nothing can be read", admitted(t, away, fresh(), stored), nil, nil)

	w.change(release, func() { release.Spec = aPayload("gvisor", "2", "runsc").Spec })
	w.get(c)
	w.must(w.client.Delete(t.Context(), c))
	check("of a runtime that is taken off", admitted(t, w.client, fresh(), stored), nil, nil)
}

// Machines keep the tables of a runtime until an entry says that they are to go. It is in
// what gardenlet writes next, though nobody has the runtime any more, and goes when
// somebody has it again.
func TestMachinesLoseTheirTables(t *testing.T) {
	w, act := seed(t, "gvisor")
	c := inShoot("a")
	w.create(aPayload("gvisor", "1", "runsc"), config(t, "now", "reconcile", "a"), c)
	act(c.Name)
	lost, was := config(t, "now", "reconcile", "a"), config(t, "now", "", "")
	w.get(was)
	lost.SetResourceVersion(was.GetResourceVersion())
	w.must(w.client.Update(t.Context(), lost)) // while no replica answered
	w.get(c)
	w.must(w.client.Delete(t.Context(), c))
	act(c.Name)
	if w.get(c) {
		t.Fatal("it is still there")
	}
	going := func(u *unstructured.Unstructured) string {
		all, _, _ := unstructured.NestedSlice(u.Object, "spec", "criConfig", "containerd", "plugins")
		text, _ := json.Marshal(all)
		return string(text)
	}
	const gone = `[{"op":"remove","path":["io.containerd.grpc.v1.cri","containerd","runtimes","runsc"]}]`
	stored := config(t, "now", "", "")
	if w.get(stored); going(stored) != gone {
		t.Errorf("taken off: %s", going(stored))
	}
	anew := config(t, "now", "reconcile", "a")
	anew.SetAnnotations(stored.GetAnnotations()) // gardenlet leaves those of others
	if got := admitted(t, w.client, anew, stored); going(got) != gone {
		t.Errorf("written anew: %s", going(got))
	}
	if got := admitted(t, w.client, config(t, "next", "reconcile", "a"), nil); going(got) != "null" {
		t.Errorf("for machines that never had it: %s", going(got))
	}
	back := inShoot("a")
	w.create(back)
	act(back.Name)
	w.get(stored)
	if text := going(stored); strings.Contains(text, "remove") || !strings.Contains(text, "/var/bin/gvisor/1-") || stored.GetAnnotations()[osc.Removed] != "" {
		t.Errorf("asked for again: %s, %v", text, stored.GetAnnotations())
	}
}
