package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Enter moves the own process to the cgroup name below the root of every
// hierarchy, and makes it where it is missing. Hierarchies in which that is
// not possible are named in the error; the process has left all others.
func Enter(name string) error {
	all, err := hierarchies()
	if err != nil {
		return fmt.Errorf("find cgroup hierarchies: %w", err)
	}
	var failed []error
	for _, h := range all {
		if err := enter(h, name); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

func enter(h hierarchy, name string) error {
	dir := h.dir(name)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make cgroup: %w", err)
	}
	// A new cpuset has neither processors nor memory and takes no process.
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		inherit(h, dir, file)
	}
	if err := write(filepath.Join(dir, "cgroup.procs"), "0"); err != nil {
		return fmt.Errorf("enter cgroup %s: %w", dir, err)
	}
	return nil
}

// inherit copies a setting of cgroup v1's root that a new group lacks. If it
// fails, entering the group fails and says why.
func inherit(h hierarchy, dir, file string) {
	if h.unified {
		return
	}
	own, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil || strings.TrimSpace(string(own)) != "" {
		return
	}
	value, err := os.ReadFile(filepath.Join(h.mountPoint, file))
	if err != nil {
		return
	}
	_ = write(filepath.Join(dir, file), strings.TrimSpace(string(value)))
}

func write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// Remove removes the cgroup name from every hierarchy, and says whether it is
// gone from all. One that is in use stays.
func Remove(name string) bool {
	all, err := hierarchies()
	if err != nil || name == "" {
		return false
	}
	gone := true
	for _, h := range all {
		if err := os.Remove(h.dir(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			gone = false
		}
	}
	return gone
}
