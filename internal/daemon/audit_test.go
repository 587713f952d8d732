package daemon

import (
	"log/slog"
	"os"
	"slices"
	"testing"

	"fairlead.run/internal/audit"
	"fairlead.run/internal/image"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/store"
)

// TestAuditOfWhatIsInMemory provokes what no damage to a host can: a record or
// the use of an image of which the daemon's memory says one thing and the rest
// of it another.
func TestAuditOfWhatIsInMemory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the image store needs root")
	}
	records, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	images, err := image.Open(t.Context(), image.Config{Root: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer images.Close()

	const gone = "sha256:3b4b9c2a7b6a3a0f1f2d7c1c6c4f0a7cf7c7a3a86a6d3a1a5d2c0b9e8f7d6c5b"
	here := &pod.Record{
		Version: pod.RecordVersion, ID: pod.NewID(), State: pod.Running,
		Containers: []*pod.Container{{ID: pod.NewContainerID(), State: pod.Running, Image: pod.ContainerImage{ID: gone}}},
	}
	elsewhere := &pod.Record{Version: pod.RecordVersion, ID: pod.NewID(), State: pod.Running}
	if err := records.Put(t.Context(), elsewhere); err != nil {
		t.Fatal(err)
	}
	if err := images.SyncUses(t.Context(), map[string][]string{"nobody": {gone}}); err != nil {
		t.Fatal(err)
	}
	auditor := audit.New(&idleCore{[]*pod.Record{here}}, []audit.Part{
		{Name: "records", Keeper: records}, {Name: "images", Keeper: images.Keeper(false)},
	})
	codes := func(left bool, list []audit.Outcome) (out []string) {
		for _, o := range list {
			if !left || !o.Repaired {
				out = append(out, string(o.Code()))
			}
		}
		slices.Sort(out)
		return out
	}
	got, err := auditor.Repair(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if found, want := codes(false, got.Findings), []string{"record-leftover", "record-missing", "use-leftover", "use-missing"}; !slices.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
	// The image is not there to be kept.
	if left, want := codes(true, got.Findings), []string{"record-leftover", "use-missing"}; !slices.Equal(left, want) {
		t.Errorf("after the repair %v is left, want %v: %+v", left, want, got.Findings)
	}
}
