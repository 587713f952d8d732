package leftout

import (
	"strings"
	"testing"
)

// TestKinds has names that lead to one kind each, and a word on each of what is not done.
func TestKinds(t *testing.T) {
	ids, names := map[string]bool{}, map[string]string{}
	for _, k := range All() {
		if k.Name == "" || k.Plural == "" || k.Why == "" || ids[k.Group+" "+k.Name] {
			t.Errorf("%+v", k)
		}
		ids[k.Group+" "+k.Name] = true
		if k.Plural != strings.ToLower(k.Plural) {
			t.Errorf("%s: %s is no plural", k.Name, k.Plural)
		}
		for _, name := range []string{k.Plural, k.Short, strings.ToLower(k.Name)} {
			if other := names[name]; name != "" && other != "" && other != k.Name {
				t.Errorf("%s is %s and %s", name, other, k.Name)
			}
			names[name] = k.Name
		}
		if k.Guards != strings.Contains(k.Why, "NOT") {
			t.Errorf("%s: %q does not say loudly what is let through, or does so for nothing", k.Name, k.Why)
		}
		if found, ok := Find(strings.TrimPrefix(k.Group+"/v1", "/"), k.Name); !ok || found != k {
			t.Errorf("%s is found as %+v, %v", k.Name, found, ok)
		}
	}
	for _, version := range []string{"v1", "apps/v1", "networking.k8s.io/v1", "example.com/v1"} {
		for _, name := range []string{"Pod", "PersistentVolume", "Prometheus", "Widget"} {
			if k, ok := Find(version, name); ok {
				t.Errorf("%s of %s is left out: %+v", name, version, k)
			}
		}
	}
}
