package cli

import (
	"errors"
	"os"
	"testing"

	config "fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/errdefs"
)

// TestTheirs starts nothing in the place of a daemon that is away and comes back.
func TestTheirs(t *testing.T) {
	state := t.TempDir()
	cfg, err := config.Load()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Root, cfg.State = state+"/lib", state+"/run"
	o := &ownDaemon{cfg: cfg, theirs: true}
	if _, err := o.ensure(t.Context()); !errors.Is(err, errdefs.ErrNotFound) || o.own != nil {
		t.Errorf("%v", err)
	}
	if left, err := os.ReadDir(state); err != nil || len(left) > 0 {
		t.Errorf("there is %v, %v", left, err)
	}
}
