// Package keeper is the side of bundles that an audit looks at. It makes none;
// that is package spec's.
package keeper

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/moby/sys/mountinfo"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// Keeper knows the bundles below a state directory.
type Keeper struct {
	StateDir string // absolute
	// Remove deletes the bundle of an id, and what goes with it.
	Remove func(ctx context.Context, id string) error
}

var _ pod.Keeper = Keeper{}

// config is the file that the OCI spec has every bundle named by.
const config = "config.json"

func (k Keeper) base() string { return filepath.Join(k.StateDir, "containers") }

// Held lists bundles. One without a config.json is at fault where its
// container could still be started or executed in.
func (k Keeper) Held(_ context.Context, records []*pod.Record) ([]pod.Held, error) {
	base := k.base()
	entries, err := os.ReadDir(base)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list bundles: %w", err)
	}
	needed := map[string]bool{}
	for _, r := range records {
		for _, h := range k.Wants(r) {
			needed[h.Owner] = true
		}
	}
	out := []pod.Held{}
	for _, e := range entries {
		h := pod.Held{Kind: pod.KindBundle, Name: filepath.Join(base, e.Name()), Owner: e.Name()}
		if needed[e.Name()] {
			if _, err := os.Stat(filepath.Join(h.Name, config)); err != nil {
				h.Fault = err.Error()
			}
		}
		out = append(out, h)
	}
	return out, nil
}

// Wants are the bundles of containers that run or are about to. A record that
// stands in for a lost one does not tell where they are.
func (k Keeper) Wants(r *pod.Record) []pod.Held {
	var out []pod.Held
	for _, c := range r.Containers {
		if c.State == pod.Created || c.State == pod.Running {
			out = append(out, pod.Held{Kind: pod.KindBundle, Name: filepath.Join(k.base(), string(c.ID)), Owner: string(c.ID)})
		}
	}
	return out
}

// Drop deletes a bundle in which nothing is mounted.
func (k Keeper) Drop(ctx context.Context, h pod.Held) error {
	dir := filepath.Join(k.base(), h.Owner)
	if filepath.Dir(dir) != k.base() {
		return fmt.Errorf("delete the bundle of %q: that is no file name: %w", h.Owner, errdefs.ErrInvalidArgument)
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return fmt.Errorf("list mounts below %s: %w", dir, err)
	}
	if len(mounts) > 0 {
		return fmt.Errorf("delete %s: %s is mounted in it; unmount that first: %w", dir, mounts[0].Mountpoint, errdefs.ErrPrecondition)
	}
	return k.Remove(ctx, h.Owner)
}

// Restore cannot: what a bundle was made from is gone by the time.
func (k Keeper) Restore(_ context.Context, _ *pod.Record, h pod.Held) error {
	return fmt.Errorf("put back the bundle %s: remove the container, and its owner makes another: %w", h.Name, errdefs.ErrPrecondition)
}
