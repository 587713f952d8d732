package cgroup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead.run/internal/errdefs"
)

// The kernel's part is done by test/cri; here it is what is written, and that a
// cgroup whose processes do not stop is let go on.
func TestFreeze(t *testing.T) {
	for name, tt := range map[string]struct {
		files     map[string]string
		file      string
		stop, run string
	}{
		"v1": {map[string]string{"freezer/a/b/freezer.state": "THAWED", "memory/a/b/x": ""}, "freezer/a/b/freezer.state", "FROZEN", "THAWED"},
		"v2": {map[string]string{"cgroup.controllers": "", "a/b/cgroup.freeze": "0", "a/b/cgroup.events": "populated 1\nfrozen 1\n"}, "a/b/cgroup.freeze", "1", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			root := hierarchy(t, tt.files)
			g, err := New(root, "/a/b")
			if err != nil {
				t.Fatal(err)
			}
			has := func(want string) {
				t.Helper()
				if got, err := os.ReadFile(filepath.Join(root, tt.file)); err != nil || string(got) != want {
					t.Errorf("it is %q %v, want %q", got, err, want)
				}
			}
			for range 2 {
				if err := g.Freeze(t.Context()); err != nil {
					t.Fatal(err)
				}
				has(tt.stop)
			}
			for range 2 {
				if err := g.Thaw(); err != nil {
					t.Fatal(err)
				}
				has(tt.run)
			}
			if err := os.RemoveAll(root); err != nil {
				t.Fatal(err)
			}
			if err := g.Thaw(); err != nil {
				t.Errorf("when it is gone: %v", err)
			}
			if err := g.Freeze(t.Context()); !errors.Is(err, errdefs.ErrPrecondition) {
				t.Errorf("when it is gone: %v", err)
			}
		})
	}
}

func TestFreezeGivesUp(t *testing.T) {
	root := hierarchy(t, map[string]string{"cgroup.controllers": "", "a/b/cgroup.freeze": "0", "a/b/cgroup.events": "populated 1\nfrozen 0\n"})
	g, err := New(root, "/a/b")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := g.Freeze(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "can be stopped") {
		t.Errorf("%v", err)
	}
	if got, _ := os.ReadFile(filepath.Join(root, "a/b/cgroup.freeze")); string(got) != "0" {
		t.Errorf("it stays as good as frozen: %q", got)
	}
}
