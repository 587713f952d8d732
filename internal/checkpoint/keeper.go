package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// Keeper is the side of Folders that an audit looks at.
type Keeper struct {
	*Folders
	// Idle says that no daemon runs. No checkpoint is being made then.
	Idle bool
}

var _ pod.Keeper = Keeper{}

// Held lists the folders. Without a daemon each of them is at fault: whoever
// made it was cut off before its container was let go on for certain.
func (k Keeper) Held(context.Context, []*pod.Record) ([]pod.Held, error) {
	entries, err := os.ReadDir(k.base)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list folders of checkpoints: %w", err)
	}
	out := []pod.Held{}
	for _, e := range entries {
		h := pod.Held{Kind: pod.KindCheckpoint, Name: filepath.Join(k.base, e.Name()), Owner: e.Name()}
		if k.Idle {
			h.Fault = "no daemon runs"
		}
		out = append(out, h)
	}
	return out, nil
}

// Wants is nothing: a checkpoint needs a folder for as long as it is being made,
// which no record tells.
func (k Keeper) Wants(*pod.Record) []pod.Held { return nil }

// Drop deletes the folder of a container that is gone, and ends what writes into it.
func (k Keeper) Drop(ctx context.Context, h pod.Held) error {
	if filepath.Dir(h.Name) != k.base {
		return fmt.Errorf("delete %s: it is no folder of a checkpoint: %w", h.Name, errdefs.ErrInvalidArgument)
	}
	if pod.IsID(h.Owner) {
		if err := k.EndWriters(ctx, pod.ContainerID(h.Owner)); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(h.Name); err != nil {
		return fmt.Errorf("remove the folder of a checkpoint: %w", err)
	}
	return nil
}

// Restore cannot: the daemon lets the container go on.
func (k Keeper) Restore(_ context.Context, _ *pod.Record, h pod.Held) error {
	return fmt.Errorf("let the container of %s go on: start the daemon: %w", h.Name, errdefs.ErrPrecondition)
}
