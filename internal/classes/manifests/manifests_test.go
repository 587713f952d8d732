package manifests_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead.run/internal/classes/manifests"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", "below/b.YML": "apiVersion: v1\nkind: Pod\nmetadata: {name: b}\n",
		"c.json": `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"c"}}`, "d.txt": "no: yaml", ".git/e.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: e}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set, err := manifests.Read([]string{dir, "-"}, strings.NewReader("apiVersion: v1\nkind: Namespace\nmetadata: {name: ns}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: no}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range set.Objects {
		got = append(got, o.String())
	}
	slices.Sort(got)
	if want := []string{"Namespace ns", "Pod default/a", "Pod default/b", "Pod default/c"}; !slices.Equal(got, want) || len(set.Faults) != 1 || set.Faults[0].Line != 5 {
		t.Errorf("read %q, want %q; %v", got, want, set.Faults)
	}
	if _, err := manifests.Read([]string{dir + "/nothing"}, nil); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Error(err)
	}
	if _, err := manifests.Read([]string{"-"}, bytes.NewReader(make([]byte, manifests.MaxSize+1))); err == nil || !strings.Contains(err.Error(), "larger than 32 MiB") {
		t.Error(err)
	}
}

func TestLineOf(t *testing.T) {
	set := &manifests.Set{}
	set.Add("f", []byte("# a comment\n---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  annotations:\n    a.b/c: d\nspec:\n  volumes:\n  - name: one\n    emptyDir: {}\n  - name: two\n    hostPath:\n      path: /\n"))
	for field, want := range map[string]int{
		"": 3, "metadata.name": 6, "metadata.annotations[a.b/c]": 8, "spec.volumes[1].hostPath": 14, "spec.volumes[two].hostPath": 14, "spec.volumes[three]": 10, "spec.none.at.all": 9, "none": 3,
	} {
		if got := set.Objects[0].LineOf(field); got != want {
			t.Errorf("%s: line %d, want %d", field, got, want)
		}
	}
}

// FuzzAdd reads what strangers write: never a panic, and places that exist.
func FuzzAdd(f *testing.F) {
	for _, seed := range []string{
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", "a: [b\n---\nx", "&a [*a]", "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Pod}]",
		"apiVersion: v1\nkind: PodList\nitems: 3", "{\t\"kind\": 1}", "--- a\n--- b", "apiVersion: v1\nkind: Pod\nspec: {containers: [{resources: {limits: {cpu: 1e-1000}}}]}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			return
		}
		set := &manifests.Set{}
		set.Add("f", []byte(text))
		lines := strings.Count(text, "\n") + 1
		for _, fault := range set.Faults {
			if fault.Line < 1 || fault.Line > lines+1 || fault.Message == "" {
				t.Errorf("fault %+v in %d lines", fault, lines)
			}
		}
		for _, o := range set.Objects {
			if n := o.LineOf("spec.containers[0].image"); n < 1 || n > lines+1 {
				t.Errorf("%s is at line %d of %d", o, n, lines)
			}
			manifests.Template(o.Object)
		}
	})
}
