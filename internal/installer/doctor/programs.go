package doctor

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"fairlead.run/internal/inroot"
	"fairlead.run/internal/installer/containerd"
	"fairlead.run/internal/installer/process"
)

// shim looks for the program of a handler.
func (e *exam) shim(name string, p containerd.Place) {
	program := p.Path
	if program == "" {
		program = p.Type
	}
	if filepath.IsAbs(program) {
		if !e.runnable(program) {
			e.add(Finding{Error, "binary", name, program + " is not there or cannot be run", "install the runtime again, or take the handler out"})
		}
	}
	parts := strings.Split(p.Type, ".")
	if filepath.IsAbs(p.Type) || len(parts) < 3 {
		return
	}
	binary := "containerd-shim-" + strings.Join(parts[len(parts)-2:], "-")
	// containerd takes one that is beside it as well.
	if e.onPath(binary) || e.beside != "" && e.runnable(filepath.Join(e.beside, binary)) {
		return
	}
	if p.Path != "" {
		e.add(Finding{Warning, "binary", name, binary + " is not on PATH: containerd 1.6 does not use runtime_path, and 2.x loses running containers of this handler when it is restarted", "have the shim's path as runtime_type, or put a link to it into /usr/local/bin"})
		return
	}
	e.add(Finding{Error, "binary", name, binary + " is not on PATH", "install it, or take the handler out"})
}

// runc is the type of a shim that takes no configuration.
const runc = "io.containerd.runc.v2"

// runcShim is the program of that, which starts runc unless it is told another one.
const runcShim = "containerd-shim-runc-v2"

// unconfigured looks for the programs of handlers that no file names: those that are served
// or, where that is not seen, the one that containerd has by itself, if it has.
func (e *exam) unconfigured(configured map[string]containerd.Place, byItself bool) {
	found := map[string]containerd.Place{}
	for name, l := range e.seen.Loaded {
		p := containerd.Place{Type: l.Type, Path: l.Path}
		p.Program, _ = l.Options["BinaryName"].(string)
		found[name] = p
	}
	if e.seen.Loaded == nil && byItself {
		found["runc"] = containerd.Place{Type: runc}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if _, ok := configured[name]; !ok {
			e.shim(name, found[name])
			e.options(name, found[name])
		}
	}
}

// options looks for the files that the options of a handler name. containerd does not: it
// serves the handler, and then no pod starts on it.
func (e *exam) options(name string, p containerd.Place) {
	where := "options"
	if p.File != "" {
		where = fmt.Sprintf("options of %s:%d", p.File, p.Line)
	}
	switch fix := "install the runtime again, correct BinaryName in the " + where + ", or take the handler out"; {
	case p.Program == "" && (p.Type == runc || filepath.Base(p.Type) == runcShim) && !e.onPath("runc"):
		e.add(Finding{Error, "binary", name, "runc, which its shim starts, is not on PATH", "install runc, or name another program as BinaryName in the " + where})
	case p.Program == "":
	case filepath.IsAbs(p.Program) && !e.runnable(p.Program):
		e.add(Finding{Error, "binary", name, "its BinaryName " + p.Program + " is not there or cannot be run", fix})
	case !filepath.IsAbs(p.Program) && !e.onPath(p.Program):
		e.add(Finding{Error, "binary", name, "its BinaryName " + p.Program + " is not on PATH", fix})
	}
	if p.Type != runc {
		e.runtimeConfig(name, p.Config, "ConfigPath in the "+where)
	}
}

// runtimeConfig looks for the configuration of a handler's runtime, and says where its path is
// from.
func (e *exam) runtimeConfig(name, path, from string) {
	if !filepath.IsAbs(path) {
		return // there is none, or it depends on where the shim runs
	}
	if info, err := os.Stat(e.real(path)); err != nil || !info.Mode().IsRegular() {
		e.add(Finding{Error, "config", name, "the configuration of its runtime, " + path + ", is no file that is there, so that no pod starts on it", "install the runtime again, correct " + from + ", or take the handler out"})
	}
}

// onPath says whether the runtime finds a program by its name.
func (e *exam) onPath(name string) bool {
	switch {
	case len(e.search) > 0:
		return slices.ContainsFunc(e.search, func(dir string) bool { return e.runnable(filepath.Join(dir, name)) })
	case e.dist.Containerd.Generated:
		return true // distributions of Kubernetes have folders of their own, which are not known here
	}
	if e.Root == "" || filepath.Clean(e.Root) == "/" {
		if _, err := exec.LookPath(name); err == nil {
			return true
		}
	}
	for _, dir := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/opt/bin"} {
		if e.runnable(filepath.Join(dir, name)) {
			return true
		}
	}
	return false
}

// runnable says whether a path of the node leads to a program.
func (e *exam) runnable(path string) bool { return process.Runnable(e.real(path)) }

// real is where a path of the node leads, as seen from here.
func (e *exam) real(path string) string { return inroot.Join(e.Root, path) }
