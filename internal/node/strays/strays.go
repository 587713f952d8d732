// Package strays finds what earlier agents have left of pods, down to folders of which
// nobody knows any more. What becomes of it is not decided here.
package strays

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/node/removal"
)

// Find gives the UIDs of pods that have folders below the persistent folder and that on a
// tmpfs, and of which nobody knows. Others may be about to start pods beside who asks, and
// tell nobody, so that only what an earlier boot has left counts.
func Find(root, state string, known func(uid string) bool) ([]string, error) {
	dirs, booted := removal.Dirs(root, state, ""), bootTime()
	return folders([]string{dirs.Disk, dirs.Memory}, func(uid string) bool {
		return !removal.IsUID(uid) || known(uid) || !older(filepath.Join(dirs.Disk, uid), booted) || !older(filepath.Join(dirs.Memory, uid), booted)
	})
}

// folders are the names of those in some places, each once, but for those that are known.
func folders(places []string, known func(uid string) bool) ([]string, error) {
	var out []string
	var errs []error
	seen := map[string]bool{}
	for _, parent := range places {
		entries, err := os.ReadDir(parent)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("look for folders that pods have left: %w", err))
		}
		for _, e := range entries {
			if uid := e.Name(); e.IsDir() && !seen[uid] && !known(uid) {
				seen[uid] = true
				out = append(out, uid)
			}
		}
	}
	return out, errors.Join(errs...)
}

// older says that nobody has changed a folder since, or that there is none.
func older(path string, than time.Time) bool {
	info, err := os.Stat(path)
	return errors.Is(err, os.ErrNotExist) || err == nil && info.ModTime().Before(than)
}

// bootTime is when the machine was started, by the clock as it is set now.
func bootTime() time.Time {
	var now, up unix.Timespec
	if errors.Join(unix.ClockGettime(unix.CLOCK_REALTIME, &now), unix.ClockGettime(unix.CLOCK_BOOTTIME, &up)) != nil {
		return time.Time{} // and nothing is older
	}
	return time.Unix(0, now.Nano()-up.Nano())
}
