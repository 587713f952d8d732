package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/cgroups"

	"fairlead.run/internal/pod"
)

// The files of cpuset controllers.
const (
	cpus = "cpuset.cpus"
	mems = "cpuset.mems"
)

// setAbove is what a cgroup may use that has no set of its own: what the one above
// it has. It is "" where nobody says.
func setAbove(m cgroups.Manager, file string) string {
	above := filepath.Dir(m.Path("cpuset"))
	if cgroups.IsCgroup2UnifiedMode() {
		file += ".effective"
	}
	content, _ := os.ReadFile(filepath.Join(above, file)) // without the controller there is none
	return strings.TrimSpace(string(content))
}

// passSets gives the processors and memory nodes that a pod is to have to those of
// its containers that have no set of their own. On cgroup v2 the kernel does; on v1
// it refuses a set that does not cover those below, and these are copies.
func passSets(m cgroups.Manager, r *pod.Record, want *cgroups.Resources) error {
	dir := m.Path("cpuset")
	if cgroups.IsCgroup2UnifiedMode() || dir == "" {
		return nil
	}
	for _, s := range []struct {
		file, to string
		own      func(*pod.Resources) string
	}{
		{cpus, want.CpusetCpus, func(l *pod.Resources) string { return l.CpusetCPUs }},
		{mems, want.CpusetMems, func(l *pod.Resources) string { return l.CpusetMems }},
	} {
		if s.to == "" {
			continue
		}
		own := func(id string) bool {
			for _, c := range r.Containers {
				if strings.Contains(id, string(c.ID)) {
					return c.Limits() != nil && s.own(c.Limits()) != ""
				}
			}
			return false
		}
		if err := passSet(dir, s.file, s.to, own); err != nil {
			return err
		}
	}
	return nil
}

// passSet gives a set to the cgroups below dir, but to those that have one of their
// own, by name. Until it is told otherwise, dir has what it had as well. Below a
// container's cgroup there may be more: crun makes one in a scope of systemd's.
func passSet(dir, file, to string, own func(name string) bool) error {
	had, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return err
	}
	below, err := filepath.Glob(filepath.Join(dir, "*", file))
	if err != nil || len(below) == 0 || strings.TrimSpace(string(had)) == to {
		return err
	}
	if err := writeSet(filepath.Join(dir, file), strings.TrimSpace(string(had))+","+to); err != nil {
		return err
	}
	for _, f := range below {
		child := filepath.Dir(f)
		if own(filepath.Base(child)) {
			continue
		}
		if err := passSet(child, file, to, own); err != nil {
			return err
		}
		if err := writeSet(f, to); err != nil {
			return err
		}
	}
	return nil
}

func writeSet(name, to string) error {
	if err := os.WriteFile(name, []byte(to), 0); err != nil {
		return fmt.Errorf("set %s to %s: %w", name, to, err)
	}
	return nil
}
