package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// freezer is how the processes of a cgroup are stopped together.
type freezer struct {
	file      string // that is written; empty if there is none
	stop, run string // what is written
	state     string // the file that tells
}

func (g *Group) freezer() freezer {
	for _, dir := range g.Dirs {
		for _, f := range []freezer{
			{filepath.Join(dir, "freezer.state"), "FROZEN", "THAWED", filepath.Join(dir, "freezer.state")},
			{filepath.Join(dir, "cgroup.freeze"), "1", "0", filepath.Join(dir, "cgroup.events")},
		} {
			if _, err := os.Stat(f.file); err == nil {
				return f
			}
		}
	}
	return freezer{}
}

// frozen says whether all processes have stopped.
func (f freezer) frozen() (bool, error) {
	state, err := os.ReadFile(f.state)
	return strings.HasPrefix(string(state), "FROZEN") || strings.Contains(string(state), "frozen 1"), err
}

// Freeze stops all processes until Thaw, and waits for that until ctx ends. One
// in an uninterruptible sleep does not stop. After a failure none is stopped.
func (g *Group) Freeze(ctx context.Context) (err error) {
	f := g.freezer()
	if f.file == "" {
		return fmt.Errorf("the host has no freezer for its cgroup, or it is gone: %w", errdefs.ErrPrecondition)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Thaw())
		}
	}()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		// A v1 freezer takes what was forked in the meantime at the next write.
		if err := os.WriteFile(f.file, []byte(f.stop), 0); err != nil {
			return err
		}
		if done, err := f.frozen(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not all of its processes can be stopped; one may wait for a device or a network file system: %w", context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// Thaw lets the processes go on. It does not mind a cgroup that is not frozen, or
// gone.
func (g *Group) Thaw() error {
	f := g.freezer()
	if f.file == "" {
		return nil
	}
	err := os.WriteFile(f.file, []byte(f.run), 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// freezeWait bounds the wait for processes to stop. One in an uninterruptible
// sleep does not; it gets its signal all the same.
const freezeWait = 500 * time.Millisecond

// freeze stops the processes, so that none forks between being listed and being
// killed, and returns what lets them go on.
func (g *Group) freeze(ctx context.Context) (thaw func(), err error) {
	f := g.freezer()
	if f.file == "" {
		return func() {}, nil
	}
	thaw = func() { _ = os.WriteFile(f.file, []byte(f.run), 0) } // gone is as good
	if err := os.WriteFile(f.file, []byte(f.stop), 0); err != nil {
		thaw()
		return nil, fmt.Errorf("freeze the container: %w", err)
	}
	for deadline := time.Now().Add(freezeWait); ctx.Err() == nil && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if done, err := f.frozen(); done || err != nil {
			break
		}
		// A v1 freezer takes what was forked in the meantime at the next write.
		_ = os.WriteFile(f.file, []byte(f.stop), 0)
	}
	return thaw, nil
}
