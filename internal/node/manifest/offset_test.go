package manifest

import (
	"strings"
	"testing"
)

func TestBadValueNamesLineAndPlace(t *testing.T) {
	const head = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n"
	for name, c := range map[string]struct{ text, want string }{
		"literal for a list": {
			head + "  containers:\n  - name: a\n    image: x\n  - name: b\n    command: foo\n",
			"f.yaml:9: document 1: Pod default/p: spec.containers[1].command: a string does not fit here, a list does",
		},
		"literal within a list": {
			head + "  containers:\n  - name: a\n    args:\n    - x\n    - 3\n",
			"f.yaml:9: document 1: Pod default/p: spec.containers[0].args[1]: a number does not fit here, a string does",
		},
		"list for an object": {
			head + "  containers: []\n  securityContext: [1, 2]\n",
			"f.yaml:6: document 1: Pod default/p: spec.securityContext: a list does not fit here, an object does",
		},
		"object for a literal": {
			head + "  hostNetwork: {a: 1}\n",
			"f.yaml:5: document 1: Pod default/p: spec.hostNetwork: an object does not fit here, true or false does",
		},
		"image that would drive the terminal": {
			head + "  containers:\n  - name: a\n    image: \"x\\e[2J\"\n",
			`f.yaml:7: document 1: Pod default/p: spec.containers[0].image: "x\x1b[2J" holds a space or a control character`,
		},
	} {
		_, err := Decode([]Source{{Name: "f.yaml", Data: []byte(c.text)}})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}
