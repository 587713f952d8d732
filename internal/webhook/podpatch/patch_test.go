package podpatch_test

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kjson "sigs.k8s.io/json"

	"fairlead.run/internal/webhook/podpatch"
	"fairlead.run/pkg/runtimeclass"
)

func decode(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	if err := json.Unmarshal([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestOf(t *testing.T) {
	for name, test := range map[string]struct{ from, to, patch string }{
		"same":              {`{"metadata":{"annotations":{"a":"b"}},"spec":{"nodeSelector":{"a":"b"}}}`, `{"metadata":{"annotations":{"a":"b"}},"spec":{"nodeSelector":{"a":"b"}}}`, ``},
		"empty and missing": {`{"metadata":{"annotations":{}},"spec":{"tolerations":[],"overhead":{}}}`, `{"metadata":{},"spec":{}}`, ``},
		"amounts":           {`{"spec":{"overhead":{"cpu":"1"}}}`, `{"spec":{"overhead":{"cpu":"1000m"}}}`, ``},
		"first annotation":  {`{}`, `{"metadata":{"annotations":{"a/b":"c"}}}`, `[{"op":"add","path":"/metadata/annotations","value":{"a/b":"c"}}]`},
		"annotations": {
			`{"metadata":{"annotations":{"a":"1","b/c":"2","d~e":"3"}}}`, `{"metadata":{"annotations":{"a":"1","b/c":"","f":"4"}}}`,
			`[{"op":"remove","path":"/metadata/annotations/d~0e"},{"op":"replace","path":"/metadata/annotations/b~1c","value":""},{"op":"add","path":"/metadata/annotations/f","value":"4"}]`,
		},
		"last annotation": {`{"metadata":{"annotations":{"a":"1"}}}`, `{}`, `[{"op":"remove","path":"/metadata/annotations"}]`},
		"class":           {`{}`, `{"spec":{"runtimeClassName":"a"}}`, `[{"op":"add","path":"/spec/runtimeClassName","value":"a"}]`},
		"other class":     {`{"spec":{"runtimeClassName":"b"}}`, `{"spec":{"runtimeClassName":"a"}}`, `[{"op":"replace","path":"/spec/runtimeClassName","value":"a"}]`},
		"empty class":     {`{"spec":{"runtimeClassName":""}}`, `{}`, `[{"op":"remove","path":"/spec/runtimeClassName"}]`},
		"overhead":        {`{}`, `{"spec":{"overhead":{"cpu":"1"}}}`, `[{"op":"add","path":"/spec/overhead","value":{"cpu":"1"}}]`},
		"one toleration":  {`{"spec":{"tolerations":[{"key":"a"}]}}`, `{"spec":{"tolerations":[{"key":"a"},{"key":"b"}]}}`, `[{"op":"add","path":"/spec/tolerations/-","value":{"key":"b"}}]`},
		"merged":          {`{"spec":{"tolerations":[{"key":"a"}]}}`, `{"spec":{"tolerations":[{"operator":"Exists"}]}}`, `[{"op":"add","path":"/spec/tolerations","value":[{"operator":"Exists"}]}]`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := podpatch.Of(decode(t, test.from), decode(t, test.to))
			if err != nil || string(got) != test.patch {
				t.Errorf("%s\nwanted %s\n%v", got, test.patch, err)
			}
		})
	}
}

// What the patch makes of the document is what admission made of the pod, fields
// that nobody here knows stay, and there is nothing to do the second time.
func FuzzPatch(f *testing.F) {
	for _, s := range [][2]string{
		{`{"metadata":{},"spec":{}}`, `{}`},
		{`{"metadata":{"annotations":{"a/b~c":"d"}},"spec":{"runtimeClassName":"c","nodeSelector":{"x":"y"},"future":1,"tolerations":[{"key":"a","operator":"Exists","new":2}]}}`, `{"overhead":{"podFixed":{"cpu":"250m"}},"scheduling":{"nodeSelector":{"a/b":"","c":"d"},"tolerations":[{"key":"a"},{"key":"b","operator":"Exists"}]}}`},
		{`{"metadata":{"annotations":{"fairlead.run/runtimeclass-injected":"{}"}},"spec":{"runtimeClassName":""}}`, `{}`},
		{`{"metadata":{"annotations":null},"spec":{"runtimeClassName":"c","nodeSelector":null,"tolerations":null,"overhead":null}}`, `{"overhead":{"podFixed":{"memory":"1Gi"}},"scheduling":{"nodeSelector":{"a":"b"},"tolerations":[{}]}}`},
	} {
		f.Add([]byte(s[0]), []byte(s[1]))
	}
	f.Fuzz(func(t *testing.T, document, spec []byte) {
		pod, class, ok := read(document, spec)
		if !ok {
			return
		}
		// As in the webhook: a copy that shares what stays, and somebody chooses.
		d, err := (runtimeclass.Admission{Classes: runtimeclass.NewMap(class), Chooser: always(class.Name), Shallow: true}).Create(pod)
		if err != nil {
			return
		}
		patch, err := podpatch.Of(pod, d.Pod)
		if err != nil {
			t.Fatal(err)
		}
		got := apply(t, document, patch)
		if !equality.Semantic.DeepEqual(d.Pod, got) {
			t.Fatalf("%s\nmakes of\n%s\n%s", patch, document, cmp.Diff(d.Pod, got))
		}
		if again, err := podpatch.Of(got, d.Pod); err != nil || again != nil {
			t.Fatalf("again: %s %v", again, err)
		}
	})
}

// always chooses the class of that name for pods that have none.
type always string

// Choose is part of runtimeclass.Chooser.
func (a always) Choose(*corev1.Pod) (runtimeclass.Choice, error) {
	return runtimeclass.Choice{Class: string(a), By: "test"}, nil
}

// read is a pod and a class for it, unless an API server would not send them.
func read(document, spec []byte) (*corev1.Pod, *nodev1.RuntimeClass, bool) {
	strict := func(text []byte, into any) bool {
		doubles, err := kjson.UnmarshalStrict(text, into, kjson.DisallowDuplicateFields)
		return err == nil && len(doubles) == 0
	}
	pod, class := &corev1.Pod{}, &nodev1.RuntimeClass{}
	var parts map[string]map[string]any
	if costly.Match(document) || costly.Match(spec) || !strict(document, pod) || !strict(spec, class) ||
		json.Unmarshal(document, &parts) != nil || parts["metadata"] == nil || parts["spec"] == nil {
		return nil, nil, false
	}
	if class.Name = runtimeclass.NameOf(pod); class.Name == "" {
		class.Name = "chosen"
	}
	return pod, class, true
}

// costly is what package review refuses: quantities that take minutes to read.
var costly = regexp.MustCompile(`[eE][-+]?[0-9]{4}|[0-9.]{65}`)

func apply(t *testing.T, document, patch []byte) *corev1.Pod {
	t.Helper()
	if patch != nil {
		operations, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			t.Fatal(err)
		}
		if document, err = operations.Apply(document); err != nil {
			t.Fatalf("%s: %v", patch, err)
		}
	}
	pod := &corev1.Pod{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(document, pod); err != nil {
		t.Fatal(err)
	}
	return pod
}
