package plugins

import (
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/operator/plugin"
)

// What every plugin has to do, and a new one is held against by being here.
func TestContract(t *testing.T) {
	at := field.NewPath("x")
	for _, p := range All().All() {
		d := p.Describe()
		t.Run(d.Type, func(t *testing.T) {
			for _, name := range append([]string{d.Type}, d.Aliases...) {
				if len(validation.IsDNS1123Label(name)) > 0 {
					t.Errorf("%s is no DNS label", name)
				}
			}
			if len(d.Type) > payload.MaxType {
				t.Errorf("%s is longer than %d characters, by which payloads are called", d.Type, payload.MaxType)
			}
			if d.Isolation == "" {
				t.Error("it does not say how far it isolates")
			}
			for _, none := range [][]byte{nil, []byte("null"), []byte("{}")} {
				if _, faults := p.Configure(none, nil, at); len(faults) > 0 {
					t.Errorf("%s: %v", none, faults)
				}
			}
			for _, bad := range []string{`{"nobodyKnows":1}`, `[]`, `{`, `{"kind":"Pod"}`, `{"apiVersion":"v1"}`, `{"kind":"A","kind":"B"}`, strings.Repeat(" ", 65<<10) + "{}"} {
				if _, faults := p.Configure([]byte(bad), nil, at); len(faults) == 0 {
					t.Errorf("%.40s was taken", bad)
				}
			}
			if fault, _ := p.Suits(plugin.Machine{}, at); fault != nil {
				t.Errorf("a machine of no type: %v", fault)
			}
		})
	}
}

func TestEachFolderIsListed(t *testing.T) {
	folders, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range folders {
		if f.IsDir() && f.Name() != "list" {
			n++
		}
	}
	if got := len(All().All()); got != n {
		t.Errorf("%d types of %d folders: run make generate", got, n)
	}
}

func FuzzConfigure(f *testing.F) {
	f.Add([]byte(`{"configFlags":{"debug":"true"},"overhead":{"memory":"1Mi"}}`))
	f.Add([]byte(`{"handlers":["kata-qemu"]}`))
	p := &payload.RuntimePayload{Handlers: []payload.Handler{{Name: "kata-qemu"}}, Configs: []payload.Config{{Path: "runsc.toml", Content: "a = 1\n[runsc_config]\nb = \"c\"\n"}}}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, one := range All().All() {
			settings, faults := one.Configure(raw, p, nil)
			if len(faults) > 0 {
				continue
			}
			again, _ := one.Configure(raw, p, nil)
			if len(settings.Install.Configs) > 0 && settings.Install.Configs[0] != again.Install.Configs[0] {
				t.Error("the same configuration is another text")
			}
			if _, err := plugin.Classes(one.Describe(), p, settings); err != nil {
				t.Error(err)
			}
		}
	})
}
