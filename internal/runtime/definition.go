package runtime

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/errdefs"
)

// The kinds of handlers. A handler whose configuration names none is KindOCI.
const (
	KindOCI  = "oci"
	KindShim = "shim"
)

// Definition describes a handler before anybody has tried it.
type Definition struct {
	Name string
	// Handler is the configuration; zero for a handler that was discovered.
	v1alpha1.Handler
	// Search is where a program that is named without a path is looked for.
	Search []string
	// Pinned is the program of a revision, an absolute path; empty for the one that
	// the configuration names.
	Pinned string
}

// Kind is Handler.Type, never empty.
func (d Definition) Kind() string {
	if d.Type == "" {
		return KindOCI
	}
	return d.Type
}

// Program is the absolute path of the handler's program at this moment. The
// error says where it was looked for, and wraps errdefs.ErrNotFound.
func (d Definition) Program() (string, error) {
	if d.Pinned != "" {
		return d.Pinned, executable(d.Pinned)
	}
	name := d.Path
	if name == "" {
		name = d.Name
	}
	if d.Path == "" && d.Kind() == KindShim {
		name = v1alpha1.ShimProgram(d.RuntimeType)
	}
	if filepath.IsAbs(name) {
		return name, executable(name)
	}
	for _, dir := range d.Search {
		if path := filepath.Join(dir, name); executable(path) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no program %s in %s; install it, or set handlers.%s.path: %w",
		name, strings.Join(d.Search, ", "), d.Name, errdefs.ErrNotFound)
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Errorf("there is no program %s: %w", path, errdefs.ErrNotFound)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no program but a %s: %w", path, info.Mode().Type(), errdefs.ErrNotFound)
	case info.Mode().Perm()&0o111 == 0:
		return fmt.Errorf("%s is not executable (%s): %w", path, info.Mode().Perm(), errdefs.ErrNotFound)
	}
	return nil
}

// discoverable are the handlers that are looked for where none is configured. The
// first that works is the default.
var discoverable = []string{"crun", "runc", "runsc"}

// SearchPath is where programs are looked for: PATH, and the usual directories,
// which are missing from the PATH of many services.
func SearchPath() []string {
	var dirs []string
	usual := []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), usual...) {
		// A relative entry would make the program depend on the working directory.
		if filepath.IsAbs(dir) && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}
