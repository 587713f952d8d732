package cli

import (
	"errors"
	"os"
	"strings"
	"testing"

	config "fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/endpoint"
	"fairlead.run/internal/node/fakeruntime"
)

// ownDaemonIn is of folders below one that is empty.
func ownDaemonIn(t *testing.T, folder string) *ownDaemon {
	t.Helper()
	cfg, err := config.Load()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Root, cfg.State = folder+"/lib", folder+"/run"
	return &ownDaemon{cfg: cfg}
}

// TestTheirs starts nothing in the place of a daemon that is away and comes back.
func TestTheirs(t *testing.T) {
	folder := t.TempDir()
	o := ownDaemonIn(t, folder)
	o.theirs = true
	if _, err := o.ensure(t.Context()); !errors.Is(err, errdefs.ErrNotFound) || o.own != nil {
		t.Errorf("%v", err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("there is %v, %v", left, err)
	}
}

// TestLast keeps the place of a daemon that says that it stays, from then on, and of no other.
func TestLast(t *testing.T) {
	for name, tt := range map[string]struct {
		process string
		err     error
		theirs  bool
	}{
		"a daemon":         {process: `{"stays": true}`, theirs: true},
		"within a command": {process: `{"stays": false}`},
		"of others":        {},
		"that hangs":       {process: `{"stays": true}`, err: errdefs.ErrDeadline},
	} {
		t.Run(name, func(t *testing.T) {
			fake := fakeruntime.New()
			fake.Process(tt.process)
			fake.Fail("list", tt.err)
			folder := t.TempDir()
			o := ownDaemonIn(t, folder)
			o.last(t.Context(), &endpoint.Endpoint{Runtime: fake})
			if o.theirs != tt.theirs || !o.lasts {
				t.Errorf("theirs: %v, lasts: %v", o.theirs, o.lasts)
			}
			if !tt.theirs {
				return
			}
			if _, err := o.ensure(t.Context()); !errors.Is(err, errdefs.ErrNotFound) || !strings.Contains(err.Error(), "is waited for") || o.own != nil {
				t.Errorf("its place is taken: %v", err)
			}
		})
	}
}
