package history

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"fairlead.run/internal/lifecycle/ops"
	"fairlead.run/internal/pod"
)

func ended(verb string, id pod.ID, at int, steps int) ops.Ended {
	return ops.Ended{
		About: ops.About{Verb: verb, Kind: ops.KindPod, Pod: id}, Began: time.Unix(int64(at), 0), Steps: make([]ops.Step, steps),
	}
}

func TestHistory(t *testing.T) {
	var h History
	h.Add(ended(ops.Start, "a", 2, 3))
	h.Add(ended(ops.Run, "a", 1, 100))
	h.Add(ended(ops.Exec, "a", 3, 1))
	h.Add(ended(ops.Run, "b", 4, 1))
	h.Add(ended(ops.Run, "", 5, 1))
	got := h.Of("a", pod.Metadata{})
	if len(got) != 2 || got[0].Verb != ops.Run || got[1].Verb != ops.Start || len(got[0].Steps) != maxSteps || len(got[1].Steps) != 3 {
		t.Errorf("%+v", got)
	}
	if len(h.Of("", pod.Metadata{})) != 0 || len(h.Of("c", pod.Metadata{})) != 0 {
		t.Error("operations of no pod")
	}
	for i := range 3*maxOperations + 7 {
		h.Add(ended(ops.Run, pod.ID(fmt.Sprint("p", i)), i, 1))
	}
	if len(h.all) != maxOperations || len(h.Of("a", pod.Metadata{})) != 0 || len(h.Of(pod.ID(fmt.Sprint("p", 3*maxOperations+6)), pod.Metadata{})) != 1 ||
		len(h.Of(pod.ID(fmt.Sprint("p", 2*maxOperations+7)), pod.Metadata{})) != 1 || len(h.Of(pod.ID(fmt.Sprint("p", 2*maxOperations+6)), pod.Metadata{})) != 0 {
		t.Errorf("%d are kept", len(h.all))
	}
}

// A pull is the pod's that it was for, under its id or, if it was over before there
// was one, under its name.
func TestPulls(t *testing.T) {
	var h History
	a, b := pod.Metadata{Name: "a", UID: "1"}, pod.Metadata{Name: "b", UID: "2"}
	pull := func(image string, id pod.ID, at int, of ...pod.Metadata) {
		e := ended(ops.Pull, id, at, 2)
		e.Kind, e.Name, e.For = ops.KindImage, image, of
		h.Add(e)
	}
	pull("early", "", 1, b, a)
	pull("nobody's", "", 2)
	pull("late", "p-a", 3, a)
	pull("another's", "p-c", 4, a)
	h.Add(ended(ops.Run, "p-a", 2, 1))
	var got []string
	for _, e := range h.Of("p-a", a) {
		got = append(got, e.Verb+" "+e.Name)
	}
	if want := []string{"pull early", "run ", "pull late"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := h.Of("p-b", b); len(got) != 1 || got[0].Name != "early" {
		t.Errorf("%+v", got)
	}
	if got := h.Of("p-d", pod.Metadata{}); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	if len(h.StartMedians()) != 0 {
		t.Error("a pull is no start")
	}
}

func TestStartMedians(t *testing.T) {
	var h History
	add := func(handler, verb string, ms int, err error) {
		h.Add(ops.Ended{About: ops.About{Verb: verb, Pod: "a"}, Handler: handler, Took: time.Duration(ms) * time.Millisecond, Err: err})
	}
	for _, ms := range []int{30, 10, 20} {
		add("crun", ops.Run, ms, nil)
		add("crun", ops.Create, 1, nil)
		add("crun", ops.Start, 5, nil)
	}
	add("crun", ops.Run, 1, errors.New("refused"))
	add("crun", ops.Remove, 1000, nil)
	add("runc", ops.Run, 7, nil)
	if got := h.StartMedians(); len(got) != 1 || got["crun"] != 26*time.Millisecond {
		t.Errorf("%v", got)
	}
}
