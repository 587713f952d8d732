package pod

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestSalvage(t *testing.T) {
	broken, lostID, old, ctr := NewID(), NewID(), NewID(), NewContainerID()
	web := Metadata{Name: "web", Namespace: "default", UID: "u", Attempt: 2}
	at := time.Unix(100, 0)
	got := Salvage(map[ID]error{broken: errors.New("cut short")}, []Trace{
		{Pod: lostID, Made: at.Add(time.Second)},
		{Pod: broken, Made: at},
		{Pod: broken, Metadata: web, Handler: "runc", Made: at.Add(time.Second), Container: &ContainerTrace{
			ID: ctr, Metadata: ContainerMetadata{Name: "app", Attempt: 1}, Labels: map[string]string{"c": "d"}, Image: "sha256:1", Volumes: []string{"sha256:2"},
		}},
		{Pod: broken, Metadata: web, Handler: "runc", Pause: true, Made: at.Add(2 * time.Second)},
		{Pod: old, Metadata: web, Durable: true}, // of an earlier boot: no proof of anything
		{Pod: lostID, Metadata: Metadata{Name: "db", Namespace: "x"}, Labels: map[string]string{"a": "b"}, Durable: true},
	})
	want := map[ID]*Record{
		broken: {
			ID: broken, Handler: "runc", Requested: "runc", State: Unknown, CreatedAt: at,
			Config: Config{Metadata: web}, Sandbox: Sandbox{Pause: &RunningProcess{}},
			Containers: []*Container{{
				ID: ctr, State: Unknown, Reason: ReasonUnknown, CreatedAt: at.Add(time.Second),
				Config: ContainerConfig{
					Metadata: ContainerMetadata{Name: "app", Attempt: 1}, Labels: map[string]string{"c": "d"}, Image: ImageSpec{Image: "sha256:1"},
				},
				Image:      ContainerImage{ID: "sha256:1", Ref: "sha256:1", Volumes: []string{"sha256:2"}},
				StopSignal: "SIGTERM",
			}},
		},
		lostID: {
			ID: lostID, State: Unknown, CreatedAt: at.Add(time.Second),
			Config: Config{Metadata: Metadata{Name: "db", Namespace: "x"}, Labels: map[string]string{"a": "b"}},
		},
	}
	if len(got) != len(want) {
		t.Fatalf("%d pods", len(got))
	}
	for _, r := range got {
		if !r.Salvaged() || !strings.Contains(r.Reason, "stop and remove the pod") {
			t.Errorf("%+v", r)
		}
		if r.ID == broken && !strings.Contains(r.Reason, "cut short") {
			t.Errorf("the reason hides the cause: %s", r.Reason)
		}
		if d := cmp.Diff(want[r.ID], r, cmpopts.EquateComparable(), cmpopts.IgnoreFields(Record{}, "Reason"), cmpopts.IgnoreFields(Container{}, "Message")); d != "" {
			t.Error(d)
		}
	}
}

// A pod of which nothing but its id is known has a name all the same: the CRI
// and its users cannot do without.
func TestSalvagedPodsHaveNames(t *testing.T) {
	id := NewID()
	if got := Salvage(map[ID]error{id: errors.New("x")}, nil); len(got) != 1 || got[0].Config.Metadata.Name != id.Short() {
		t.Fatal(got)
	}
}

func TestIsID(t *testing.T) {
	for s, want := range map[string]bool{
		string(NewID()): true, "": false, "x": false, strings.Repeat("A", 64): false, strings.Repeat("a", 63): false,
		strings.Repeat("/", 64): false,
	} {
		if IsID(s) != want {
			t.Errorf("%q", s)
		}
	}
}
