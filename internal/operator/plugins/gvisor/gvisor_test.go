package gvisor

import (
	"strings"
	"testing"

	payload "fairlead.run/api/payload/v1alpha1"
)

func TestFlagsGoIntoTheShimsConfiguration(t *testing.T) {
	p := &payload.RuntimePayload{Version: "1", Configs: []payload.Config{{Path: configFile, Content: "binary_name = \"${PAYLOAD}/runsc\"\n[runsc_config]\nroot = \"/run/runsc\"\n"}}}
	raw := []byte(`{"apiVersion":"gvisor.runtime.extensions.config.gardener.cloud/v1alpha1","kind":"GVisorConfiguration","configFlags":{"net-raw":"true","platform":"kvm"}}`)
	s, faults := New().Configure(raw, p, nil)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	got := s.Install.Configs[0].Content
	for _, want := range []string{`binary_name = '${PAYLOAD}/runsc'`, `[runsc_config]`, `net-raw = 'true'`, `platform = 'kvm'`, `root = '/run/runsc'`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in:\n%s", want, got)
		}
	}
	for _, without := range []*payload.RuntimePayload{{Version: "1"}, {Version: "1", Configs: []payload.Config{{Path: configFile, Content: "["}}}} {
		if _, faults := New().Configure(raw, without, nil); len(faults) != 1 {
			t.Errorf("%+v: %v", without, faults)
		}
	}
}

// Below CRI-O pods on such a handler would hang.
func TestRunscItselfBelowCRIO(t *testing.T) {
	for name, c := range map[string]struct {
		kind, program string
		want          bool
	}{"runsc": {"oci", "bin/runsc", true}, "its shim": {"vm", "containerd-shim-runsc-v2", false}, "another program": {"oci", "crun", false}} {
		p := &payload.RuntimePayload{Version: "7", Handlers: []payload.Handler{{Name: "a", Containerd: &payload.ContainerdHandler{}}, {Name: "b", CRIO: &payload.CRIOHandler{RuntimeType: c.kind, RuntimePath: c.program}}}}
		_, faults := New().Configure(nil, p, nil)
		if got := len(faults) == 1 && strings.Contains(faults[0].Error(), "handler b is of the type vm"); got != c.want || !c.want && len(faults) > 0 {
			t.Errorf("%s: %v", name, faults)
		}
	}
}
