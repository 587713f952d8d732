package manifest

import (
	"fmt"
	"strings"
	"testing"
)

func file(t *testing.T, name, text string) *File {
	t.Helper()
	f, err := DecodeFile(Source{name, []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

const user = `apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  containers: [{name: c, image: i, envFrom: [{configMapRef: {name: m}}]}]
`

const settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {a: %s}\n"

// TestMerge puts files together of which each is right for itself.
func TestMerge(t *testing.T) {
	a := file(t, "a.yaml", onePod+"---\n"+deployment("apps/v1", 2))
	tests := []struct {
		name     string
		files    []*File
		pods     string
		problems []string // origin and part of the text
	}{
		{"nothing", nil, "", nil},
		{"references across files", []*File{file(t, "u.yaml", user), file(t, "z.yaml", fmt.Sprintf(settings, "b"))}, "user", nil},
		{"a reference to nothing keeps the pod", []*File{a, file(t, "u.yaml", user)}, "web d-0 d-1 user", []string{"u.yaml: no ConfigMap default/m"}},
		{
			"a pod that an earlier file has",
			[]*File{a, file(t, "b.yaml", onePod+"---\n"+user), file(t, "m.yaml", fmt.Sprintf(settings, "b"))},
			"web d-0 d-1 user",
			[]string{"b.yaml: b.yaml:4: document 1: Pod default/web: is defined twice; the first is at a.yaml:1: document 1"},
		},
		{
			"a whole Deployment",
			[]*File{a, file(t, "b.yaml", deployment("apps/v1", 3))},
			"web d-0 d-1",
			[]string{"b.yaml: Deployment default/d: is defined twice", "its pod d-0 is defined twice", "its pod d-1 is defined twice"},
		},
		{
			"one pod of a Deployment",
			[]*File{file(t, "0.yaml", strings.Replace(onePod, "web", "d-1", 1)), a},
			"d-1 web d-0",
			[]string{"a.yaml: its pod d-1 is defined twice; the first is at 0.yaml:1"},
		},
		{
			"an object",
			[]*File{file(t, "1.yaml", fmt.Sprintf(settings, "first")), file(t, "2.yaml", fmt.Sprintf(settings, "second")), file(t, "u.yaml", user)},
			"user",
			[]string{"2.yaml: ConfigMap default/m: is defined twice; the first is at 1.yaml:1"},
		},
		{
			"too many",
			[]*File{file(t, "1.yaml", deployment("apps/v1", 999)), file(t, "2.yaml", user+"---\n"+fmt.Sprintf(settings, "a")), file(t, "3.yaml", onePod)},
			"999 d-... user",
			[]string{"3.yaml: ask for 1001 pods; the most is 1000"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, problems := Merge(tt.files)
			problems = append(problems, o.References()...)
			var names []string
			for _, p := range o.Pods {
				names = append(names, p.Name)
			}
			got := strings.Join(names, " ")
			if len(names) > 10 {
				got = fmt.Sprintf("%d d-... %s", len(names)-1, names[len(names)-1])
			}
			if got != tt.pods {
				t.Errorf("pods %q, want %q", got, tt.pods)
			}
			if len(problems) != len(tt.problems) {
				t.Fatalf("%d problems, want %d: %v", len(problems), len(tt.problems), problems)
			}
			for i, p := range problems {
				origin, text, _ := strings.Cut(tt.problems[i], ": ")
				if text == "" || !strings.HasSuffix(origin, ".yaml") {
					origin, text = p.Origin, tt.problems[i]
				}
				if p.Origin != origin || !strings.Contains(p.Err.Error(), text) {
					t.Errorf("problem %d: %s: %v\nwant %q", i, p.Origin, p.Err, tt.problems[i])
				}
			}
			if cm := o.ConfigMaps[Key{"default", "m"}]; tt.name == "an object" && (cm == nil || cm.Data["a"] != "first") {
				t.Errorf("the ConfigMap is %+v", cm)
			}
		})
	}
}

// TestFilesStandAlone decodes a file whose fault is its own.
func TestFilesStandAlone(t *testing.T) {
	if _, err := DecodeFile(Source{"u.yaml", []byte(user)}); err != nil {
		t.Errorf("a reference to another file: %v", err)
	}
	if _, err := DecodeFile(Source{"u.yaml", []byte(user + "---\n" + user)}); err == nil || !strings.Contains(err.Error(), "is defined twice") {
		t.Errorf("an object twice in one file: %v", err)
	}
	_, err := Decode([]Source{{"u.yaml", []byte(user)}})
	if err == nil || !strings.Contains(err.Error(), "no ConfigMap default/m is in the files given") {
		t.Errorf("a run in the foreground: %v", err)
	}
}
