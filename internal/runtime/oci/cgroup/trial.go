package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// below is where files of a cgroup are: crun makes one of its own in a scope of
// systemd's.
var below = []string{"", "container"}

// content is what files of one name say, in all hierarchies.
func (g *Group) content(names ...string) (out []string, err error) {
	var files []string
	for _, name := range names {
		for _, dir := range g.Dirs {
			for _, sub := range below {
				files = append(files, filepath.Join(dir, sub, name))
			}
		}
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, strings.TrimSpace(string(data)))
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the cgroup has no %s", strings.Join(names, " or "))
	}
	return out, nil
}

// Shares are the processor shares of the cgroup as the kernel tells them.
func (g *Group) Shares() (string, error) {
	out, err := g.content("cpu.shares", "cpu.weight")
	return strings.Join(out, ","), err
}

// TryShares changes them, and says why that has no effect, or nil.
func (g *Group) TryShares(shares int) error {
	before, err := g.Shares()
	if err != nil {
		return err
	}
	for _, dir := range g.Dirs {
		value := fmt.Sprint(shares)
		if err := errors.Join(write(filepath.Join(dir, "cpu.shares"), value), write(filepath.Join(dir, "cpu.weight"), value)); err != nil {
			return err
		}
	}
	after, err := g.Shares()
	if err == nil && after == before {
		err = fmt.Errorf("the processor shares are %s as before", after)
	}
	return err
}

// Measured says why the kernel does not tell what the processes of the cgroup use,
// or nil.
func (g *Group) Measured() error {
	memory, err := g.content("memory.usage_in_bytes", "memory.current")
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(memory, func(s string) bool { return s != "0" }) {
		return errors.New("the cgroup uses no memory, and something runs in it")
	}
	_, err = g.content("cpuacct.usage", "cpu.stat")
	return err
}
