package ops

import (
	"context"
	"testing"
	"time"

	"fairlead.run/internal/stage"
)

// Who traces is told each stage in its order, and that of no other operation.
func TestTraceTellsStages(t *testing.T) {
	type end struct {
		about About
		steps []Step
	}
	ends := make(chan end, 1)
	l := Ledger{Trace: func(a About, s []Step) { ends <- end{a, s} }}
	about := About{Verb: Run, Kind: KindPod, Name: "a"}
	_, err := l.Do(t.Context(), Task{About: about}, func(ctx context.Context) (string, error) {
		stage.Enter(ctx, "one")
		time.Sleep(2 * time.Millisecond)
		stage.Enter(ctx, "two")
		return "", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got := <-ends
	if got.about != about {
		t.Errorf("about %v, want %v", got.about, about)
	}
	if len(got.steps) != 3 || got.steps[0].Stage != "begin" || got.steps[1].Stage != "one" || got.steps[2].Stage != "two" {
		t.Fatalf("steps %+v, want begin, one, two", got.steps)
	}
	if got.steps[1].MS < 2 {
		t.Errorf("stage one took %v ms, and slept for two", got.steps[1].MS)
	}
}
