package source

import (
	"reflect"
	"strings"
	"testing"

	"fairlead.run/internal/node/manifest"
)

func objects(t *testing.T, name, text string) *manifest.Objects {
	t.Helper()
	f, err := manifest.DecodeFile(manifest.Source{Name: name, Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	o, problems := manifest.Merge([]*manifest.File{f})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return o
}

const (
	podA   = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i, envFrom: [{configMapRef: {name: m}}]}]}\n"
	podB   = "apiVersion: v1\nkind: Pod\nmetadata: {name: b}\nspec: {containers: [{name: c, image: i}]}\n"
	config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n"
)

func TestMerger(t *testing.T) {
	var last Set
	m := NewMerger(func(s Set) { last = s }, File, Address)
	check := func(step, pods string, unread []string, problems ...string) {
		t.Helper()
		got := "none"
		if last.Objects != nil {
			got = ""
			for _, p := range last.Objects.Pods {
				got += p.Name + ":" + p.From + " "
			}
		}
		if got != pods || !reflect.DeepEqual(last.Unread, unread) || len(last.Problems) != len(problems) {
			t.Fatalf("%s: pods %q, unread %v, problems %v", step, got, last.Unread, last.Problems)
		}
		for i, p := range last.Problems {
			if !strings.Contains(p.Origin+": "+p.Err.Error(), problems[i]) {
				t.Errorf("%s: problem %s: %v, want %q", step, p.Origin, p.Err, problems[i])
			}
		}
	}
	m.From(File)(Set{Problems: []Problem{{Origin: "/m", Err: errTest}}})
	check("nothing is read", "none", []string{File, Address}, "/m: test")
	m.From(File)(Set{Objects: objects(t, "a.yaml", podA)})
	check("one is read", "a:file ", []string{Address})
	m.From(Address)(Set{Objects: objects(t, "http://x", podB)})
	check("a reference leads nowhere", "a:file b:http ", nil, "a.yaml: a.yaml:1: document 1: Pod default/a: spec.containers[0].envFrom[0].configMapRef: no ConfigMap default/m")
	m.From(Address)(Set{Objects: objects(t, "http://x", podB+"---\n"+config+"---\n"+podA)})
	check("across sources, and one twice", "a:file b:http ", nil, "http: http://x:12: document 3: Pod default/a: is defined twice; the first is at a.yaml:1")
	m.From(File)(Set{Objects: objects(t, "b.yaml", config)})
	check("the first is gone", "b:http a:http ", nil, "http: http://x:8: document 2: ConfigMap default/m: is defined twice")
}

type testError struct{}

func (testError) Error() string { return "test" }

var errTest = testError{}
