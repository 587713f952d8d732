package ops

import (
	"context"
	"errors"
	"testing"
	"time"

	"fairlead.run/internal/stage"
	"fairlead.run/internal/telemetry"
)

// Who traces is told each stage in its order, and that of no other operation.
func TestTraceTellsStages(t *testing.T) {
	ends := make(chan Ended, 1)
	l := Ledger{Trace: func(e Ended) { ends <- e }}
	about := About{Verb: Run, Kind: KindPod, Name: "a"}
	ctx := telemetry.WithParent(t.Context(), "00-1-2-01")
	_, err := l.Do(ctx, Task{About: about}, func(ctx context.Context) (string, error) {
		stage.Enter(ctx, "one")
		time.Sleep(2 * time.Millisecond)
		stage.Enter(ctx, "two")
		return "id", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got := <-ends
	about.Pod = "id" // it got one
	if got.About != about || got.Err != nil || got.Parent != "00-1-2-01" || got.Took < 2*time.Millisecond {
		t.Errorf("%+v, want %v", got, about)
	}
	if len(got.Steps) != 3 || got.Steps[0].Stage != "begin" || got.Steps[1].Stage != "one" || got.Steps[2].Stage != "two" {
		t.Fatalf("steps %+v, want begin, one, two", got.Steps)
	}
	if got.Steps[1].MS < 2 {
		t.Errorf("stage one took %v ms, and slept for two", got.Steps[1].MS)
	}
}

func TestTraceTellsFailures(t *testing.T) {
	var got Ended
	l := Ledger{Trace: func(e Ended) { got = e }}
	asked, err := Ask("crun", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.Do(t.Context(), Task{Asked: asked, About: About{Verb: Run, Kind: KindPod}}, func(context.Context) (string, error) {
		return "half", errors.New("boom")
	})
	if err == nil || got.Err == nil || got.Handler != "crun" || got.Pod != "" {
		t.Errorf("%v %+v", err, got)
	}
}
