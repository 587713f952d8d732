package doctor

import (
	"maps"
	"path/filepath"
	"slices"

	"fairlead.run/internal/installer/crio"
)

// monitored looks at handlers that CRI-O serves and whose containers conmon watches over.
func (e *exam) monitored() {
	for _, name := range slices.Sorted(maps.Keys(e.seen.Loaded)) {
		l := e.seen.Loaded[name]
		if !crio.NeedsMonitor(l.Type) {
			continue
		}
		if l.Monitor == "" {
			e.add(Finding{Error, "monitor", name, "CRI-O has read its files by SIGHUP and has no monitor for this handler since, so that no container starts on it", "restart CRI-O, or set monitor_path"})
		}
		if filepath.Base(l.Path) == "runsc" {
			e.add(Finding{Error, "handler", name, "below CRI-O no start of a container by runsc returns, so that pods on this handler hang", "have it of the type vm with gVisor's shim, as fairlead install writes it"})
		}
	}
}

// runtimePath looks for the program of a handler, as CRI-O does: it leaves the handler out
// if that is not there, or does not start if it is the one for pods without a class.
func (e *exam) runtimePath(name string, c *crio.Config) {
	program := c.Program(name)
	const fix = "install the runtime again, correct its runtime_path, or take the handler out"
	switch {
	case c.Inherits(name):
	case program == "" && !e.onPath(name):
		e.add(Finding{Error, "binary", name, "it has no runtime_path, and " + name + " is not on PATH", fix})
	case program != "" && !filepath.IsAbs(program):
		e.add(Finding{Warning, "binary", name, "its runtime_path " + program + " depends on the folder that CRI-O is started in", "write it as an absolute path"})
	case program != "" && !e.runnable(program):
		e.add(Finding{Error, "binary", name, program + " is not there or cannot be run", fix})
	}
}

// conmon looks for the program that watches over a handler's containers, without which CRI-O
// does not start.
func (e *exam) conmon(name string, c *crio.Config) {
	if !crio.NeedsMonitor(c.Type(name)) || c.Inherits(name) {
		return
	}
	const fix = "install conmon, or correct the path of it"
	switch monitor := c.MonitorPath(name); {
	case monitor == "" && !e.onPath("conmon"):
		e.add(Finding{Error, "monitor", name, "it has no monitor_path, and conmon is not on PATH, so that CRI-O will not start again", fix})
	case filepath.IsAbs(monitor) && !e.runnable(monitor):
		e.add(Finding{Error, "monitor", name, "its monitor " + monitor + " is not there or cannot be run", fix})
	}
}

// builtIn looks for the programs of handlers that no file of CRI-O's names.
func (e *exam) builtIn(c *crio.Config, configured map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(e.seen.Loaded)) {
		l := e.seen.Loaded[name]
		if _, ok := configured[name]; !ok && filepath.IsAbs(l.Path) && !e.runnable(l.Path) {
			e.add(Finding{Error, "binary", name, l.Path + " is not there or cannot be run", "install it again"})
		}
	}
	if e.seen.Loaded == nil && c.Default() == "" && len(configured) == 0 && !e.onPath("crun") && !e.onPath("runc") {
		e.add(Finding{Error, "binary", "crun", "no handler is configured, and neither crun nor runc is on PATH, so that CRI-O will not start", "install crun, or configure a handler"})
	}
}
