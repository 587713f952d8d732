package stage_test

import (
	"context"
	"testing"

	"fairlead.run/internal/stage"
)

func TestEnter(t *testing.T) {
	stage.Enter(context.Background(), "nobody asked") // must do nothing
	var outer, inner string
	ctx := stage.With(context.Background(), func(s string) { outer = s })
	stage.Enter(ctx, "one")
	ctx = stage.With(ctx, func(s string) { inner = s })
	stage.Enter(ctx, "two")
	if outer != "one" || inner != "two" {
		t.Errorf("outer %q, inner %q: a part of an operation that is one itself has its own stages", outer, inner)
	}
}
