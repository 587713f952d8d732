// Package links is a folder of links to the logs of containers, by which log shippers find
// them: names tell of which container of which pod each is. A kubelet has the same in
// /var/log/containers. It reads and writes no logs.
package links

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Folder is that of the links to what is in a folder of logs: /var/log/containers for
// /var/log/pods. Of another one it is beside that, so that two nodes on a machine do not meet.
func Folder(logs string) string {
	if logs = filepath.Clean(logs); logs != "/var/log/pods" {
		return logs + "-containers"
	}
	return "/var/log/containers"
}

// Container is one that has a log, whose path is absolute.
type Container struct{ Namespace, Pod, Name, ID, Log string }

// suffix is that of links, and longest what file systems take as a name.
const (
	suffix  = ".log"
	longest = 255
)

func (c Container) link() string {
	name := fmt.Sprintf("%s_%s_%s-%s", c.Pod, c.Namespace, c.Name, c.ID)
	return name[:min(len(name), longest-len(suffix))] + suffix
}

// Make makes the link to a log that is there.
func Make(folder string, c Container) error {
	if _, err := os.Lstat(c.Log); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // what is written to no file needs no link
		}
		return fmt.Errorf("link a log: %w", err)
	}
	path := filepath.Join(folder, c.link())
	switch has, err := os.Readlink(path); {
	case err == nil && has == c.Log:
		return nil
	case err == nil: // to a log that somebody has moved
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("link a log: %w", err)
		}
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("link a log: %w", err)
	}
	if err := os.Symlink(c.Log, path); err != nil {
		return fmt.Errorf("link a log: %w", err)
	}
	return nil
}

// Sweep removes links to logs of a folder that are gone. Those to elsewhere are others'.
func Sweep(logs string) error {
	if logs == "" {
		return nil
	}
	folder := Folder(logs)
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list links to logs: %w", err)
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(folder, e.Name())
		to, err := os.Readlink(path)
		if err != nil || !strings.HasPrefix(to, filepath.Clean(logs)+"/") || !isGone(to) {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove a link to a log: %w", err))
		}
	}
	return errors.Join(errs...)
}

// isGone says that nothing is left of a log. In the middle of a rotation there is what was
// rotated away, and no log.
func isGone(log string) bool {
	if _, err := os.Lstat(log); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	left, err := filepath.Glob(log + ".*")
	return err == nil && len(left) == 0
}
