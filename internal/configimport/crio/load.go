package crio

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"fairlead.run/internal/configimport/tree"
	"fairlead.run/internal/errdefs"
)

// Bounds of what is read; each file has one of its own.
const (
	maxFiles = 256
	maxBytes = 8 << 20
)

// DefaultPaths are where CRI-O has its configuration, in the order in which it
// is read.
func DefaultPaths() []string { return []string{"/etc/crio/crio.conf", "/etc/crio/crio.conf.d"} }

// DefaultRegistries are the same for what CRI-O shares with podman.
func DefaultRegistries() []string {
	return []string{"/etc/containers/registries.conf", "/etc/containers/registries.conf.d"}
}

// files lists those that paths stand for. A folder stands for all that is below
// it, in lexical order, whatever the files are called. A path that does not
// exist is left out if it may be missing.
func files(paths []string, mayMiss bool) ([]string, error) {
	var out []string
	for _, path := range paths {
		if _, err := os.Stat(path); mayMiss && os.IsNotExist(err) {
			continue
		}
		err := filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if !e.IsDir() {
				out = append(out, p)
			}
			if len(out) > maxFiles {
				return fmt.Errorf("%s: these are more than %d files: %w", path, maxFiles, errdefs.ErrInvalidArgument)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read configuration: %w", err)
		}
	}
	return out, nil
}

// load reads files, each over those before it, as merge does.
func load(paths []string, merge func(top, file *tree.Node)) (*tree.Node, error) {
	top := &tree.Node{Table: map[string]*tree.Node{}}
	size := 0
	for _, path := range paths {
		file, err := tree.Read(path)
		if err != nil {
			return nil, err
		}
		if size += file.Size; size > maxBytes {
			return nil, fmt.Errorf("%s: together with the files before it, this is more than %d bytes: %w", path, maxBytes, errdefs.ErrInvalidArgument)
		}
		merge(top, file)
	}
	return top, nil
}

// mergeMain merges tables key by key, but a handler or a workload that is
// described again is replaced as a whole.
func mergeMain(top, file *tree.Node) {
	for _, name := range []string{"runtimes", "workloads"} {
		ours, theirs := top.At("crio", "runtime", name), file.At("crio", "runtime", name)
		if !ours.IsTable() {
			continue
		}
		for key := range theirs.Tables() {
			delete(ours.Table, key)
		}
	}
	top.Merge(file)
}
