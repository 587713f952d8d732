package shim

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"fairlead.run/internal/runtime"
	"fairlead.run/internal/taskapi"
)

// A shim that is killed before it has said where it listens leaves no socket. That
// takes knowing where the real one makes it, which is seen while it is on trial.
func TestSocketIsWhereItIsLookedFor(t *testing.T) {
	h := newHost(t)
	def := runtime.Definition{Name: "shim", Handler: runcShim(t)}
	d, o := h.drivers(t)
	ctx, stop := context.WithCancel(t.Context())
	seen := make(chan bool, 1)
	go func() {
		for ctx.Err() == nil {
			records, _ := filepath.Glob(filepath.Join(h.state, "runtimes/shim/*"))
			for _, folder := range records {
				r, err := taskapi.ReadRecord(filepath.Dir(folder), filepath.Base(folder))
				if err == nil && r.Address != "" {
					seen <- h.isLookedFor(t, filepath.Base(folder), r.SocketPath())
					return
				}
			}
			time.Sleep(time.Millisecond)
		}
		seen <- false
	}()
	for ctx.Err() == nil && len(seen) == 0 {
		if info := d.probe(ctx, o, def); !info.Ready {
			t.Fatal(info.Reason)
		}
	}
	stop()
	if !<-seen {
		t.Error("the shim's socket is somewhere else")
	}
}

// isLookedFor tells whether a socket is among those that are removed.
func (h *host) isLookedFor(t *testing.T, id, socket string) bool {
	t.Helper()
	folder := filepath.Join(h.state, "shims")
	events, _ := filepath.Glob(filepath.Join(folder, "*"))
	for _, e := range events {
		paths := taskapi.Bootstrap{ID: id, Events: "unix://" + e, Sockets: folder}.SocketPaths()
		if slices.Contains(paths, socket) {
			return true
		}
	}
	t.Logf("%s is at %s; %v", id, socket, events)
	return false
}
