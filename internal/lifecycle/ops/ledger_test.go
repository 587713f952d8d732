package ops

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/stage"
)

// What can end, ends before End is over, and is told that it must.
func TestEndGivesOperationsUp(t *testing.T) {
	var l Ledger
	begun, result := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := l.Do(t.Context(), Task{About: About{Verb: Run, Kind: KindPod, Name: "a"}}, func(ctx context.Context) (string, error) {
			close(begun)
			<-ctx.Done()
			return "", context.Cause(ctx)
		})
		result <- err
	}()
	<-begun
	if left := l.End(time.Millisecond, time.Minute); len(left) > 0 {
		t.Fatalf("left behind: %v", left)
	}
	if err := <-result; !errors.Is(err, errdefs.ErrUnavailable) {
		t.Errorf("the caller heard %v", err)
	}
}

// A stage has a limit, and every new stage has it anew; the grace that a caller
// asked for is on top.
func TestStageLimit(t *testing.T) {
	cause := make(chan error, 1)
	op := new(Ledger).newOperation(Task{About: About{Verb: Stop}, Grace: time.Hour}, func(err error) { cause <- err })
	if !op.late.Stop() {
		t.Fatal("no limit")
	}
	op.enter("next")
	if !op.late.Stop() {
		t.Fatal("the next stage has no limit")
	}
	op.late.Reset(0)
	if err := <-cause; !errors.Is(err, errdefs.ErrDeadline) || !strings.Contains(err.Error(), "1h4m0s") {
		t.Errorf("got %v", err)
	}
}

func TestPanicIsTheOperationsError(t *testing.T) {
	var l Ledger
	_, err := l.Do(t.Context(), Task{About: About{Verb: Run, Kind: KindPod, Name: "a"}}, func(ctx context.Context) (string, error) {
		stage.Enter(ctx, "juggle")
		panic("oops")
	})
	if !errors.Is(err, errdefs.ErrInternal) || !strings.Contains(err.Error(), `panic at stage "juggle": oops`) {
		t.Errorf("got %v", err)
	}
}
