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
