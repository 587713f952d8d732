package audit

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// node is a core and a driver in memory.
type node struct {
	records []*pod.Record
	busy    bool // an operation is under way for as long as anybody asks
	things  map[pod.Held]pod.Held
	wants   []pod.Held
	held    int  // how often a pod was held
	stays   bool // Drop and Restore say that they worked, and did nothing
	fails   map[string]error
	blind   error
	done    []string
}

func (n *node) Records(context.Context) ([]*pod.Record, error) { return n.records, nil }

func (n *node) Hold(ctx context.Context, id pod.ID, _ pod.ContainerID, do func(*pod.Record) error) error {
	if n.busy {
		return context.DeadlineExceeded
	}
	for _, r := range n.records {
		if r.ID == id {
			n.held++
			return do(r)
		}
	}
	return errdefs.ErrNotFound
}

func (n *node) Held(context.Context, []*pod.Record) ([]pod.Held, error) {
	out := []pod.Held{}
	for _, h := range n.things {
		out = append(out, h)
	}
	return out, n.blind
}

func (n *node) Wants(r *pod.Record) []pod.Held {
	return slices.DeleteFunc(slices.Clone(n.wants), func(h pod.Held) bool { return h.Owner != string(r.ID) || r.State != pod.Running })
}

func (n *node) Drop(_ context.Context, h pod.Held) error {
	n.done = append(n.done, "drop "+h.Name)
	if err := n.fails[h.Name]; err != nil || n.stays {
		return err
	}
	delete(n.things, h.Key())
	return nil
}

func (n *node) Restore(_ context.Context, _ *pod.Record, h pod.Held) error {
	n.done = append(n.done, "restore "+h.Name)
	if err := n.fails[h.Name]; err != nil || n.stays {
		return err
	}
	h.Fault = ""
	n.things[h.Key()] = h
	return nil
}

func (n *node) put(list ...pod.Held) {
	if n.things == nil {
		n.things = map[pod.Held]pod.Held{}
	}
	for _, h := range list {
		n.things[h.Key()] = h
	}
}

func (n *node) auditor() *Auditor { return New(n, []Part{{"things", n}}) }

func TestRepairMends(t *testing.T) {
	n := &node{records: []*pod.Record{record("p", pod.Running)}, wants: []pod.Held{held(pod.KindLink, "lost", "p")}}
	n.put(held(pod.KindWritable, "under", "q"), held(pod.KindProcess, "alive", "q"), held(pod.KindFolder, "fine", "p"))
	look, err := n.auditor().Look(t.Context())
	if err != nil || len(look.Findings) != 3 || !look.Left() || n.done != nil {
		t.Fatalf("look: %+v, %v, did %v", look, err, n.done)
	}
	got, err := n.auditor().Repair(t.Context())
	if err != nil || got.Left() || len(got.Findings) != 3 {
		t.Errorf("repair: %+v, %v", got, err)
	}
	if want := []string{"drop alive", "drop under", "restore lost"}; !slices.Equal(n.done, want) {
		t.Errorf("did %v, want %v", n.done, want)
	}
	if n.held == 0 {
		t.Error("the pod was not held")
	}
}

// TestRepairStops wants nothing taken from under what could not be ended.
func TestRepairStops(t *testing.T) {
	n := &node{fails: map[string]error{"alive": errors.New("it does not die")}}
	n.put(held(pod.KindWritable, "under", "q"), held(pod.KindProcess, "alive", "q"), held(pod.KindWritable, "other", "z"))
	got, err := n.auditor().Repair(t.Context())
	if err != nil || !got.Left() {
		t.Fatalf("%+v, %v", got, err)
	}
	if want := []string{"drop alive", "drop other"}; !slices.Equal(n.done, want) {
		t.Errorf("did %v, want %v", n.done, want)
	}
	for _, o := range got.Findings {
		if o.Thing.Name == "under" && (o.Err == nil || !strings.Contains(o.Err.Error(), "it does not die")) {
			t.Errorf("under: %v", o.Err)
		}
	}
}

// TestRepairBelievesNothing wants a look after each repair.
func TestRepairBelievesNothing(t *testing.T) {
	n := &node{stays: true}
	n.put(held(pod.KindMount, "sticky", "q"))
	got, err := n.auditor().Repair(t.Context())
	if err != nil || !got.Left() || got.Findings[0].Err == nil || len(n.done) != 1 {
		t.Errorf("%+v, %v, did %v", got, err, n.done)
	}
}

// TestBusyPodsAreLeftAlone wants no word about a pod in the hands of an operation.
func TestBusyPodsAreLeftAlone(t *testing.T) {
	n := &node{records: []*pod.Record{record("p", pod.Running)}, wants: []pod.Held{held(pod.KindLink, "lost", "p")}, busy: true}
	got, err := n.auditor().Repair(t.Context())
	if err != nil || len(got.Findings) != 0 || !slices.Equal(got.Busy, []pod.ID{"p"}) || n.done != nil {
		t.Errorf("%+v, %v, did %v", got, err, n.done)
	}
}

// TestBlindPartHidesNoOther wants the rest to be looked at.
func TestBlindPartHidesNoOther(t *testing.T) {
	blind, sees := &node{blind: errors.New("dark")}, &node{}
	sees.put(held(pod.KindMount, "m", "q"))
	got, err := New(sees, []Part{{"one", blind}, {"two", sees}}).Look(t.Context())
	if err != nil || len(got.Findings) != 1 || len(got.Blind) != 1 || !strings.Contains(got.Blind[0].Error(), "look at one: dark") {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestUnreadableRecordIsFound wants it named, with what helps.
func TestUnreadableRecordIsFound(t *testing.T) {
	n := &node{records: []*pod.Record{{ID: "p", State: pod.Unknown, Reason: "torn"}}}
	got, err := n.auditor().Repair(t.Context())
	if err != nil || len(got.Findings) != 1 || got.Findings[0].Code() != "record-faulty" || !strings.Contains(got.Findings[0].Means, "torn") {
		t.Errorf("%+v, %v", got, err)
	}
}
