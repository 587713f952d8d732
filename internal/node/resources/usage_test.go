package resources

import (
	"errors"
	"testing"

	"fairlead.run/internal/errdefs"
)

// TestUsageBeforeRun is refused: there is nobody yet who measures.
func TestUsageBeforeRun(t *testing.T) {
	if _, err := keeper(false).Usage(t.Context()); !errors.Is(err, errdefs.ErrUnavailable) {
		t.Error(err)
	}
}
