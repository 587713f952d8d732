package manifests_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
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
	if want := []string{"Namespace ns", "Pod default/a", "Pod default/b", "Pod default/c"}; !slices.Equal(got, want) || len(set.Faults) != 1 || set.Faults[0].Line != 7 {
		t.Errorf("read %q, want %q; %v", got, want, set.Faults)
	}
	if _, err := manifests.Read([]string{dir + "/nothing"}, nil); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Error(err)
	}
	if _, err := manifests.Read([]string{"-"}, bytes.NewReader(make([]byte, manifests.MaxSize+1))); err == nil || !strings.Contains(err.Error(), "larger than 32 MiB") {
		t.Error(err)
	}
}

// What is wrong with one file of a folder is told, and the rest is read. A folder
// that is named by a link is read, one in a folder that is a link is not.
func TestReadFolders(t *testing.T) {
	dir, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	pod := []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n")
	for name, data := range map[string][]byte{
		"good.yaml": pod, ".hidden.yaml": pod, "binary.yaml": {0xff, 0xfe, 0, 1}, "blob.json": {0x80, 0x81}, "empty.yaml": nil,
		"control.yaml": []byte("a: \x01"), "half.yaml": []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: "),
		"half.json": []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"na`), "large.yaml": make([]byte, manifests.MaxSize+1),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"same.yaml": "good.yaml", "gone.yaml": "nothing", ".#emacs.yaml": "nothing", "loop.yaml": "loop.yaml", "up.yaml": ".", "self": "."} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(syscall.Mkfifo(filepath.Join(dir, "fifo.yaml"), 0o600), os.Symlink(dir, link)); err != nil {
		t.Fatal(err)
	}
	set, err := manifests.Read([]string{link, link + "/good.yaml", dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Objects) != 1 || set.Objects[0].File != link+"/good.yaml" {
		t.Errorf("objects: %v", set.Objects)
	}
	want := map[string]string{
		"binary.yaml": "is UTF-16 text", "blob.json": "is not UTF-8 text", "control.yaml": "control characters are not allowed", "half.yaml": "is not valid YAML: did not find",
		"half.json": "is not valid YAML: ", "large.yaml": "cannot be read: it is larger than 32 MiB", "gone.yaml": "cannot be read: no such file", "loop.yaml": "cannot be read: too many levels", "fifo.yaml": "it is no regular file",
	}
	for _, f := range set.Faults {
		name, ok := strings.CutPrefix(f.File, link+"/")
		if ok && (want[name] == "" || !strings.Contains(f.Message, want[name])) {
			t.Errorf("%s:%d: %s, want %q", name, f.Line, f.Message, want[name])
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("nothing is said of %s", name)
	}
}

// TestAdd has the ways in which objects are written.
func TestAdd(t *testing.T) {
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%s"}}`
	a, b := fmt.Sprintf(pod, "a"), fmt.Sprintf(pod, "b")
	yaml := "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n"
	for name, tt := range map[string]struct {
		text string
		want []string // objects with their lines, faults with theirs
	}{
		"documents of a chart":        {"---\n# Source: x\n---\n\n---\n" + yaml + "...\n# end\n---\n", []string{"6 Pod default/a"}},
		"after an end":                {yaml + "...\n" + yaml, []string{"1 Pod default/a", "6 Pod default/a"}},
		"a directive, a BOM and CRLF": {"\ufeff%YAML 1.1\r\n---\r\n" + strings.ReplaceAll(yaml, "\n", "\r\n") + "---\r\n" + strings.ReplaceAll(yaml, "\n", "\r\n"), []string{"3 Pod default/a", "8 Pod default/a"}},
		"JSON one after another":      {a + "\n\n" + b + a, []string{"1 Pod default/a", "3 Pod default/b", "3 Pod default/a"}},
		"JSON that breaks off":        {a + "\n{", []string{"1 Pod default/a", "2: is not valid JSON: unexpected EOF"}},
		"lists of an API server":      {`{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"a"}},` + "\n" + `{"metadata":{"name":"b"},"spec":{"hostPID":3}}]}`, []string{"1 Pod default/a", "2 Pod default/b spec.hostPID: has number and takes true or false"}},
		"lists in lists":              {strings.Repeat(`{"apiVersion":"v1","kind":"List","items":[`, 6) + a + strings.Repeat("]}", 6), []string{"1 List items: is a list in 4 others; take it apart"}},
		"no list":                     {"apiVersion: v1\nkind: PodList\nitems: 3\n", []string{"3 PodList items: is no list"}},
		"a list of others":            {"apiVersion: x/v1\nkind: AccessList\nitems: 3\n", nil},
		"no version":                  {"kind: Pod\nmetadata: {name: a}\n", []string{"1 Pod a apiVersion: is missing; a Pod has v1"}},
		"versions that are gone":      {"apiVersion: extensions/v1beta1\nkind: Deployment\nmetadata: {name: a}\n", []string{"1 Deployment a apiVersion: extensions/v1beta1 has no Deployment that is known here; write apps/v1"}},
		"versions to come":            {"apiVersion: node.k8s.io/v2\nkind: RuntimeClass\n", []string{"1 RuntimeClass apiVersion: node.k8s.io/v2 has no RuntimeClass that is known here; write node.k8s.io/v1"}},
		"kinds of others":             {"apiVersion: apps.other.io/v1\nkind: StatefulSet\n---\nkind: 3\n---\n- a\n---\ntext\n", nil},
		"a template":                  {"a: {{ .Values.x }}\n", []string{"1: is not valid YAML: invalid map key: map[interface {}]interface {}{\".Values.x\":interface {}(nil)}; it looks like a template: look at what it renders"}},
		"keys twice":                  {"a: b\na: c\na: d\n", []string{`2: is not valid YAML: key "a" already set in map`, `3: is not valid YAML: key "a" already set in map`}},
		"names of strange types":      {"apiVersion: v1\nkind: Pod\nmetadata: {name: {a: b}}\n", []string{"3 Pod default/map[a:b] metadata.name: has fields and takes text; write it in quotes"}},
		"metadata that is none":       {"apiVersion: v1\nkind: Pod\nmetadata: 3\n", []string{"3 Pod default/ metadata: has number and takes fields"}},
	} {
		set := &manifests.Set{}
		set.Add("f", []byte(tt.text))
		var got []string
		for _, o := range set.Objects {
			got = append(got, fmt.Sprintf("%d %s", o.Line, o))
		}
		for _, f := range set.Faults {
			place := strings.Fields(fmt.Sprintf("%d %s %s", f.Line, f.Object, f.Field))
			got = append(got, strings.Join(place, " ")+": "+f.Message)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s:\ngot  %q\nwant %q", name, got, tt.want)
		}
	}
}

// What is said of one object is bounded, also where each of its words is wrong.
func TestFaultsAreBounded(t *testing.T) {
	for name, text := range map[string]string{
		"quantities": "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  overhead:\n" + many("    k%d: x\n"),
		"fields":     "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n" + many("  k%d: x\n"),
		"keys":       "apiVersion: v1\n" + strings.Repeat("kind: Pod\n", 20000),
	} {
		set := &manifests.Set{}
		set.Add("f", []byte(text))
		if n := len(set.Faults); n < 50 || n > 101 {
			t.Errorf("%s: %d faults", name, n)
		}
	}
}

func many(line string) string {
	var out strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&out, line, i)
	}
	return out.String()
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
