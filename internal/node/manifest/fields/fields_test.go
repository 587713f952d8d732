package fields

import (
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestNearest(t *testing.T) {
	for word, want := range map[string]string{"nativ": "native", "crunn": "crun", "xyzzy": "", "": ""} {
		if got := Nearest(word, []string{"native", "crun", "sandboxed"}); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}

func TestHint(t *testing.T) {
	for path, want := range map[string]string{
		"spec.contaners":            "; did you mean containers?",
		"spec.containers[3].comand": "; did you mean command?",
		"spec.nothing.like.it":      "",
		"spec.zzzzzzzzzzzz":         "",
	} {
		if got := Hint(&corev1.Pod{}, path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func TestCheckNamesThePlace(t *testing.T) {
	tree := map[string]any{
		"metadata": map[string]any{"creationTimestamp": "yesterday", "name": 3},
		"spec": map[string]any{
			"overhead":   map[string]any{"memory": "1Mi", "nvidia.com/gpu": "many"},
			"containers": []any{nil, "c", map[string]any{"resources": map[string]any{"limits": map[string]any{"cpu": true, "memory": nil}}}},
		},
	}
	got := Check(tree, &corev1.Pod{})
	want := []string{
		`metadata.creationTimestamp: "yesterday" does not fit here: `,
		`spec.containers[2].resources.limits.cpu: "true" is not a quantity such as 500m or 128Mi`,
		`spec.overhead[nvidia.com/gpu]: "many" is not a quantity such as 500m or 128Mi`,
	}
	if !slices.EqualFunc(got, want, func(g, w string) bool { return len(g) >= len(w) && g[:len(w)] == w }) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	secret := map[string]any{"data": map[string]any{"a": "eA==", "b": "?"}}
	if got := Check(secret, &corev1.Secret{}); len(got) != 1 || got[0][:len("data.b: is not base64")] != "data.b: is not base64" {
		t.Errorf("secret: %q", got)
	}
}

// TestParseQuantity has numbers that the library would be busy with for hours.
func TestParseQuantity(t *testing.T) {
	for text, ok := range map[string]bool{
		"1": true, " 128Mi ": true, "1e3": true, "1E": true, "1E3": true, "-1": true, "0.5": true, "100m": true, "1e-9": true,
		"": false, "abc": false, "1e1000000000": false, "1E-1000000000": false, "1e31": false, "1e99999999999999999999": false, "1ee3": false,
	} {
		if err := ParseQuantity(text); (err == nil) != ok {
			t.Errorf("%q: %v ", text, err)
		}
	}
	if ParseQuantity(string(make([]byte, 1<<20))) == nil {
		t.Error("a megabyte is a quantity")
	}
}

func TestCheckNUL(t *testing.T) {
	tree := map[string]any{"a.b": []any{"x", "y\x00", 3}, "c": map[string]any{"k\x00": "v", "d": "\x00"}}
	got := CheckNUL(tree, "")
	want := []string{"[a.b][1]: holds", "c.d: holds", "c: has a key"}
	if !slices.EqualFunc(got, want, func(g, w string) bool { return g[:len(w)] == w }) {
		t.Errorf("got %q", got)
	}
}

func TestSteps(t *testing.T) {
	for path, want := range map[string][]string{
		"spec.containers[0].image": {"spec", "containers", "0", "image"},
		"data[tls.key]":            {"data", "tls.key"},
		"":                         nil,
	} {
		if got := Steps(path); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q", path, got)
		}
	}
	if got := Below(Join("a", "b"), "c.d"); got != "a.b[c.d]" {
		t.Errorf("below: %q", got)
	}
}

func TestAtSurvivesOddKeys(t *testing.T) {
	const text = `{"": {"": [{"": 1}, []]}, "a": {}}`
	for offset := range int64(len(text) + 2) {
		At([]byte(text), offset)
	}
	if got := At([]byte(text), int64(len(text))); got != "a" {
		t.Errorf("last value: got %q, want a", got)
	}
}
