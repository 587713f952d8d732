package daemon

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"fairlead.run/internal/errdefs"
)

func TestGroupEndsWithItsParts(t *testing.T) {
	boom := errors.New("boom")
	g, ctx := newGroup(t.Context())
	g.run("one", func() error {
		<-ctx.Done()
		return quiet(ctx, ctx.Err())
	})
	g.run("two", func() error { return quiet(t.Context(), boom) })
	if err := g.wait(ctx, time.Minute); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
}

// A part that hangs is named, and not waited for.
func TestGroupLeavesAPartBehind(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	hang := make(chan struct{})
	defer close(hang)
	g, ctx := newGroup(ctx)
	g.run("stuck", func() error {
		<-hang
		return nil
	})
	g.run("fine", func() error {
		<-ctx.Done()
		return quiet(ctx, ctx.Err())
	})
	cancel()
	if err := g.wait(ctx, 10*time.Millisecond); !errors.Is(err, errdefs.ErrDeadline) || !strings.Contains(err.Error(), "stuck did not end") {
		t.Errorf("got %v", err)
	}
}
