// Package hostpath looks at paths of the host that somebody else has mounted.
//
// Any of them may be on a file system whose server is dead (FUSE, NFS): then a
// look never ends, and no signal or deadline ends the system call. Here a look
// has a thread of its own that its caller can leave, so that it costs the pod
// that asked for the path, and nobody else. Paths of Fairlead's own need no
// such care. Nothing is changed on the host but what Resolve says.
package hostpath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"fairlead.run/internal/keylock"
	"fairlead.run/internal/stage"
)

// looking has the paths that somebody looks at. A path that hangs holds one
// thread, however often it is asked for.
var looking keylock.Locks[string]

// Look returns what look does. When ctx ends first, it returns an error that
// wraps the cause; look then goes on until the kernel lets it, and its result is
// dropped: it must leave nothing that anybody would have to take back. look runs
// on a thread with descriptors of its own, so that it can neither use those of
// others nor return any.
func Look[T any](ctx context.Context, path string, look func() (T, error)) (T, error) {
	var none T
	stage.Enter(ctx, "look at "+path)
	begin := time.Now()
	unlock, err := looking.Lock(ctx, path)
	if err != nil {
		return none, hangs(path, begin, context.Cause(ctx))
	}
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go apart.Run(func() {
		defer unlock()
		value, err := look()
		done <- answer{value, err}
	})
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		return none, hangs(path, begin, context.Cause(ctx))
	}
}

func hangs(path string, since time.Time, cause error) error {
	return fmt.Errorf("look at %s: no answer for %s; the file system that it is on hangs, as FUSE and NFS do when their server is dead: restart the server, or unmount it by force: %w",
		path, time.Since(since).Round(time.Millisecond), cause)
}

// Resolve returns a path with its links followed. One that is missing becomes a
// folder.
func Resolve(ctx context.Context, path string) (string, error) {
	return Look(ctx, path, func() (string, error) {
		resolved, err := filepath.EvalSymlinks(path)
		if !errors.Is(err, fs.ErrNotExist) {
			return resolved, err
		}
		if err := os.MkdirAll(path, 0o755); err != nil {
			return "", fmt.Errorf("make the missing folder: %w", err)
		}
		return filepath.EvalSymlinks(path)
	})
}
