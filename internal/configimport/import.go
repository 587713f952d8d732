package configimport

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"fairlead.run/internal/atomicfile"
	"fairlead.run/internal/configimport/containerd"
	"fairlead.run/internal/configimport/crio"
	"fairlead.run/internal/configimport/plan"
	"fairlead.run/internal/configimport/tree"
	"fairlead.run/internal/errdefs"
)

// Names of the runtimes that can be imported from.
const (
	Containerd = "containerd"
	CRIO       = "crio"
)

// Source is what to import.
type Source struct {
	Runtime    string   // Containerd, CRIO, or empty to find out
	Paths      []string // empty stands for where the runtime has its files
	Registries []string // CRI-O's registries.conf and folders of such
	Folder     string   // where config.toml is going to be: an absolute path
}

// Result is what was imported, and what was not.
type Result struct {
	Runtime  string         `json:"runtime"`
	Read     []string       `json:"read"`
	Findings []plan.Finding `json:"findings"`
	Files    []plan.File    `json:"-"`
}

// Import reads the files of a runtime. It writes nothing.
func Import(s Source) (*Result, error) {
	runtime, err := s.runtime()
	if err != nil {
		return nil, err
	}
	read := s.containerd
	if runtime == CRIO {
		read = s.crio
	}
	p, files, err := read()
	if err != nil {
		return nil, fmt.Errorf("import from %s: %w", runtime, err)
	}
	heading := "Written by fairlead config import from " + strings.Join(files, ", ") + "."
	out, err := p.Files(s.Folder, heading)
	if err != nil {
		return nil, fmt.Errorf("import from %s: %w", runtime, err)
	}
	return &Result{Runtime: runtime, Read: files, Findings: p.Report(), Files: out}, nil
}

func (s *Source) containerd() (*plan.Plan, []string, error) {
	if len(s.Registries) > 0 {
		return nil, nil, fmt.Errorf("containerd has no registries.conf: %w", errdefs.ErrInvalidArgument)
	}
	switch len(s.Paths) {
	case 0:
		return containerd.Read(containerd.DefaultPath)
	case 1:
		return containerd.Read(s.Paths[0])
	}
	return nil, nil, fmt.Errorf("containerd has one file, which imports others; %d were named: %w", len(s.Paths), errdefs.ErrInvalidArgument)
}

func (s *Source) crio() (*plan.Plan, []string, error) {
	p, files, err := crio.Read(crio.Sources{Paths: s.Paths, Registries: s.Registries})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("there is none of %s: %w", strings.Join(crio.DefaultPaths(), ", "), errdefs.ErrNotFound)
	}
	return p, files, err
}

// runtime finds out whose files these are.
func (s *Source) runtime() (string, error) {
	switch {
	case s.Runtime == Containerd || s.Runtime == CRIO:
		return s.Runtime, nil
	case s.Runtime != "":
		return "", fmt.Errorf("there is no import from %q, only from %s and %s: %w", s.Runtime, Containerd, CRIO, errdefs.ErrInvalidArgument)
	case len(s.Paths) > 0:
		return ofFile(s.Paths[0])
	}
	var found []string
	if exists(containerd.DefaultPath) {
		found = append(found, Containerd)
	}
	if exists(crio.DefaultPaths()...) {
		found = append(found, CRIO)
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", fmt.Errorf("neither containerd nor CRI-O is configured here: there is no %s: %w",
			strings.Join(append([]string{containerd.DefaultPath}, crio.DefaultPaths()...), ", "), errdefs.ErrNotFound)
	}
	return "", fmt.Errorf("both containerd and CRI-O are configured here; say which with --from: %w", errdefs.ErrPrecondition)
}

func exists(paths ...string) bool {
	for _, p := range paths {
		if _, err := os.Stat(p); err == nil {
			return true
		}
	}
	return false
}

// ofFile tells by a file's tables whose it is. Only CRI-O has folders.
func ofFile(path string) (string, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return CRIO, nil
	}
	file, err := tree.Read(path)
	if err != nil {
		return "", err
	}
	if file.At("crio") != nil {
		return CRIO, nil
	}
	return Containerd, nil
}

// Write makes the files below a folder, and says which. Without force nothing is
// written if one of them is there already.
func (r *Result) Write(folder string, force bool) ([]string, error) {
	var paths, there []string
	for _, f := range r.Files {
		path := filepath.Join(folder, filepath.FromSlash(f.Path))
		if _, err := os.Lstat(path); err == nil {
			there = append(there, path)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("write %s: %w", path, err)
		}
		paths = append(paths, path)
	}
	if len(there) > 0 && !force {
		return nil, fmt.Errorf("%s: %w", strings.Join(there, ", "), errdefs.ErrAlreadyExists)
	}
	for i, f := range r.Files {
		if err := os.MkdirAll(filepath.Dir(paths[i]), 0o755); err != nil {
			return nil, fmt.Errorf("write %s: %w", paths[i], err)
		}
		if err := atomicfile.WriteSync(paths[i], f.Data, 0o644); err != nil {
			return nil, err
		}
	}
	return paths, nil
}
