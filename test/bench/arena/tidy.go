package arena

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// tidy removes the folder and the cgroups. All processes of the arena have
// ended, and its mounts with them.
func tidy(dir string) error {
	var failed []error
	for _, c := range cgroups(dir) {
		failed = append(failed, removeCgroup(c))
	}
	return errors.Join(append(failed, os.RemoveAll(dir))...)
}

// cgroups are the folders of the arena's cgroups that exist: that of the pods,
// and those of monitors, whose names follow from their state folders.
func cgroups(dir string) []string {
	a := arenaIn(dir)
	names := []string{a.Cgroup}
	for _, name := range StateFolders {
		sum := sha256.Sum256([]byte(filepath.Join(a.Memory, name)))
		names = append(names, "/fairlead-monitor-"+hex.EncodeToString(sum[:4]))
	}
	var out []string
	for _, name := range names {
		for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
			found, _ := filepath.Glob(pattern + name) // the pattern is sound
			out = append(out, found...)
		}
	}
	return out
}

// StateFolders are the names of the daemons' state folders in Arena.Memory.
var StateFolders = []string{"containerd", "cni", "builtin"}

// removeCgroup waits until the kernel has let go of the killed processes.
func removeCgroup(dir string) error {
	deadline := time.Now().Add(30 * time.Second)
	for {
		var below []string
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				below = append(below, path)
			}
			return nil
		})
		var err error
		for _, path := range slices.Backward(below) {
			if e := os.Remove(path); e != nil && !errors.Is(e, fs.ErrNotExist) {
				err = e
			}
		}
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("remove the cgroup %s: %w", dir, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
