package undo

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

var errBoom = errors.New("boom")

// operation pushes three undos that note their names and ends with err.
func operation(ctx context.Context, ran *[]string, end error) (err error) {
	var u Stack
	defer u.Rollback(ctx, &err)
	for _, name := range []string{"a", "b", "c"} {
		u.Push(name, func(context.Context) error {
			*ran = append(*ran, name)
			return nil
		})
	}
	return end
}

func TestRollbackRunsNewestFirst(t *testing.T) {
	var ran []string
	if err := operation(t.Context(), &ran, errBoom); !errors.Is(err, errBoom) {
		t.Fatalf("err = %v, want boom", err)
	}
	if want := []string{"c", "b", "a"}; !slices.Equal(ran, want) {
		t.Fatalf("ran %v, want %v", ran, want)
	}
}

func TestRollbackDoesNothingOnSuccess(t *testing.T) {
	var ran []string
	if err := operation(t.Context(), &ran, nil); err != nil {
		t.Fatal(err)
	}
	if len(ran) != 0 {
		t.Fatalf("ran %v after success", ran)
	}
}

func TestReleaseForgets(t *testing.T) {
	var u Stack
	u.Push("kept", func(context.Context) error { t.Error("ran a released undo"); return nil })
	u.Release()
	err := errBoom
	u.Rollback(t.Context(), &err)
	if !errors.Is(err, errBoom) {
		t.Fatalf("err = %v, want boom", err)
	}
}

func TestUndoOutlivesTheRequest(t *testing.T) {
	type key struct{}
	ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "trace"), time.Hour)
	cancel()
	u := Stack{Timeout: time.Minute}
	u.Push("look", func(ctx context.Context) error {
		if ctx.Err() != nil {
			t.Errorf("undo got a dead context: %v", ctx.Err())
		}
		if ctx.Value(key{}) != "trace" {
			t.Error("undo lost the values of the request")
		}
		end, ok := ctx.Deadline()
		if left := time.Until(end); !ok || left > time.Minute {
			t.Errorf("deadline in %v (set %t), want at most one minute", left, ok)
		}
		return nil
	})
	err := errBoom
	u.Rollback(ctx, &err)
}

func TestHangingUndoLeavesTimeForTheOthers(t *testing.T) {
	u := Stack{Timeout: 20 * time.Millisecond}
	var left error = errBoom
	u.Push("older", func(ctx context.Context) error { left = ctx.Err(); return nil })
	u.Push("hangs", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	err := errBoom
	u.Rollback(t.Context(), &err)
	if left != nil {
		t.Fatalf("the older undo started with a context that was %v", left)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("err = %v, want the hanging undo's deadline in it", err)
	}
}

func TestFailuresAreJoinedAndNamed(t *testing.T) {
	errFirst, errSecond := errors.New("first"), errors.New("second")
	var u Stack
	var last bool
	u.Push("last", func(context.Context) error { last = true; return nil })
	u.Push("detach", func(context.Context) error { return errFirst })
	u.Push("unmount", func(context.Context) error { return errSecond })
	u.Push("panics", func(context.Context) error { panic("oh") })
	err := errBoom
	u.Rollback(t.Context(), &err)
	for _, want := range []error{errBoom, errFirst, errSecond} {
		if !errors.Is(err, want) {
			t.Errorf("%v is not in %v", want, err)
		}
	}
	for _, want := range []string{`undo "detach"`, `undo "unmount"`, `undo "panics": panic: oh`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
	if !last {
		t.Error("a failing undo stopped the older ones")
	}
}

func TestPanicRollsBackAndGoesOn(t *testing.T) {
	var ran bool
	defer func() {
		if p := recover(); p != "oh" {
			t.Errorf("recovered %v, want the panic itself", p)
		}
		if !ran {
			t.Error("a panic left the step in place")
		}
	}()
	var err error
	var u Stack
	defer u.Rollback(t.Context(), &err)
	u.Push("x", func(context.Context) error { ran = true; return nil })
	panic("oh")
}

func TestRollbackTwiceRunsOnce(t *testing.T) {
	var n int
	var u Stack
	u.Push("x", func(context.Context) error { n++; return nil })
	err := errBoom
	u.Rollback(t.Context(), &err)
	u.Rollback(t.Context(), &err)
	if n != 1 {
		t.Fatalf("ran %d times", n)
	}
}

// What names the rest stays when not all of the rest could be taken back.
func TestLastIsDoneOnlyAfterAllOthers(t *testing.T) {
	for name, failure := range map[string]error{"taken back": nil, "not taken back": errBoom} {
		ran := false
		err := func() (err error) {
			var u Stack
			defer u.Rollback(t.Context(), &err)
			u.PushLast("record", func(context.Context) error { ran = true; return nil })
			u.Push("thing", func(context.Context) error { return failure })
			return errors.New("failed")
		}()
		if ran != (failure == nil) || errors.Is(err, errBoom) != (failure != nil) {
			t.Errorf("%s: ran %t, %v", name, ran, err)
		}
	}
}
