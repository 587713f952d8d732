package history

import (
	"fmt"
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
	got := h.Of("a")
	if len(got) != 2 || got[0].Verb != ops.Run || got[1].Verb != ops.Start || len(got[0].Steps) != maxSteps || len(got[1].Steps) != 3 {
		t.Errorf("%+v", got)
	}
	if len(h.Of("")) != 0 || len(h.Of("c")) != 0 {
		t.Error("operations of no pod")
	}
	for i := range 3*maxOperations + 7 {
		h.Add(ended(ops.Run, pod.ID(fmt.Sprint("p", i)), i, 1))
	}
	if len(h.all) != maxOperations || len(h.Of("a")) != 0 || len(h.Of(pod.ID(fmt.Sprint("p", 3*maxOperations+6)))) != 1 ||
		len(h.Of(pod.ID(fmt.Sprint("p", 2*maxOperations+7)))) != 1 || len(h.Of(pod.ID(fmt.Sprint("p", 2*maxOperations+6)))) != 0 {
		t.Errorf("%d are kept", len(h.all))
	}
}
