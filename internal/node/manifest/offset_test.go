package manifest

import (
	"strings"
	"testing"
)

func TestMismatchNamesLineAndPlace(t *testing.T) {
	const head = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n"
	for name, c := range map[string]struct{ text, want string }{
		"literal for a list": {
			head + "  containers:\n  - name: a\n    image: x\n  - name: b\n    command: foo\n",
			"f.yaml:9: document 1: Pod default/p: spec.containers[1].command: a string does not fit here",
		},
		"literal within a list": {
			head + "  containers:\n  - name: a\n    args:\n    - x\n    - 3\n",
			"f.yaml:9: document 1: Pod default/p: spec.containers[0].args[1]: a number does not fit here",
		},
		"list for an object": {
			head + "  containers: []\n  securityContext: [1, 2]\n",
			"f.yaml:6: document 1: Pod default/p: spec.securityContext: a array does not fit here",
		},
		"object for a literal": {
			head + "  hostNetwork: {a: 1}\n",
			"f.yaml:5: document 1: Pod default/p: spec.hostNetwork: a object does not fit here",
		},
	} {
		_, err := Decode([]Source{{Name: "f.yaml", Data: []byte(c.text)}})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

func TestPathAtSurvivesOddKeys(t *testing.T) {
	const text = `{"": {"": [{"": 1}, []]}, "a": {}}`
	for offset := range int64(len(text) + 2) {
		pathAt([]byte(text), offset)
	}
	if got := pathAt([]byte(text), int64(len(text))); got != "a" {
		t.Errorf("last value: got %q, want a", got)
	}
}
