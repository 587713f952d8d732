package webhook

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/operator/validate"
	"fairlead.run/test/apiserver"
)

// What a profile said is remembered for a while, unless somebody asks for what there is
// now, and one that is not there is not.
func TestProfilesAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := apiserver.Resource{Path: "apis/core.gardener.cloud/v1beta1/cloudprofiles", Kind: "CloudProfile"}
		api := apiserver.InMemory(t, all)
		put := func(name, image string) {
			api.Put(all, map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{"machineImages": []any{map[string]any{"name": image}}}})
		}
		put("aws", "old")
		client, err := cluster.NewClient(api.Config())
		if err != nil {
			t.Fatal(err)
		}
		p := newProfiles(client)
		ask := func(name string, fresh bool) string {
			t.Helper()
			read, remembered, err := p.Profile(t.Context(), validate.ProfileRef{Kind: validate.KindCloudProfile, Name: name}, fresh)
			if err != nil {
				t.Fatal(err)
			}
			if read == nil {
				return fmt.Sprint("none ", remembered)
			}
			return fmt.Sprint(read.Images[0].Name, " ", remembered)
		}
		want := func(what, got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
		want("at first", ask("aws", false), "old false")
		put("aws", "new")
		time.Sleep(profileTime - time.Second)
		want("a moment later", ask("aws", false), "old true")
		want("fresh", ask("aws", true), "new false")
		want("after that", ask("aws", false), "new true")
		put("aws", "newest")
		time.Sleep(profileTime)
		want("much later", ask("aws", false), "newest false")
		want("one that is not there", ask("gone", false), "none false")
		put("gone", "back")
		want("and is", ask("gone", false), "back false")
		for i := range 2 * mostProfiles {
			name := fmt.Sprint("p", i)
			put(name, "x")
			ask(name, false)
			if len(p.known) > mostProfiles {
				t.Fatalf("%d are remembered", len(p.known))
			}
		}
	})
}
