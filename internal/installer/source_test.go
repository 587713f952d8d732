package installer

import (
	"strings"
	"testing"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/stage"
)

// An object in the cluster that tells of another payload than the image has would have
// the wrong release be told of as verified.
func TestSettingsAreForAManifest(t *testing.T) {
	n := newNode(t, 2)
	dir := bundle(t, "test", "2", "new")
	digestOf := func(dir string) string {
		t.Helper()
		p, _, err := stage.ReadManifest(dir)
		if err != nil {
			t.Fatal(err)
		}
		digest, err := p.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return digest
	}
	own, older := digestOf(dir), digestOf(bundle(t, "test", "1", "old"))
	before := n.tree("/")
	for name, c := range map[string]struct {
		manifest string
		state    payload.State
	}{
		"that of the release before": {older, payload.Refused},
		"its own":                    {own, payload.Installed},
		"any":                        {"", payload.Installed},
	} {
		t.Run(name, func(t *testing.T) {
			s := Source{Dir: dir, Settings: &payload.InstallSettings{APIVersion: payload.APIVersion, Kind: payload.KindSettings, Manifest: c.manifest}}
			r := n.installer().Install(t.Context(), []Source{s})[0]
			if r.State != c.state {
				t.Fatalf("%+v", r)
			}
			if c.state == payload.Refused && (r.Reason != payload.PayloadInvalid || !strings.Contains(r.Message, "another payload.json than RuntimePayload test")) {
				t.Errorf("%+v", r)
			}
			if c.state == payload.Refused {
				n.same(before, "/")
			} else {
				n.uninstall("test")
			}
		})
	}
}
