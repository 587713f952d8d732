package containerd

import (
	"path/filepath"
	"slices"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/fault"
)

// old are tables beside that of the handlers which containerd reads before 2.0, with the
// names of the handlers that they are. One without a runtime_type counts as none: that is
// how containerd itself writes them.
var old = map[string]string{"default_runtime": "default", "untrusted_workload_runtime": "untrusted"}

// oldTables are those of a file that count, by the names of their handlers.
func oldTables(f *file) map[string][]string {
	all := map[string][]string{}
	for key, name := range old {
		at := append(plugin(f.version), "containerd", key)
		if kind, _ := f.doc.Get(append(slices.Clone(at), "runtime_type")...).(string); kind != "" && f.version < 3 {
			all[name] = at
		}
	}
	return all
}

// counting are the files whose tables of handlers count, the last one most.
func (c *Config) counting(d Daemon) []*file {
	if d.Major >= 2 || len(c.files) == 0 {
		return c.files
	}
	f, err := c.effective(d)
	if err != nil {
		return c.files
	}
	return []*file{f}
}

// needed refuses to take a handler away that is the one for pods without a class: without
// that containerd serves no CRI.
func (c *Config) needed(d Daemon, w Want) error {
	for _, f := range slices.Backward(c.counting(d)) {
		if _, ok := oldTables(f)["default"]; ok && d.Major < 2 {
			return nil // that one is it
		}
		at := append(plugin(f.version), "containerd", "default_runtime_name")
		name, ok := f.doc.Get(at...).(string)
		if !ok {
			continue
		}
		stays := slices.ContainsFunc(w.Handlers, func(h Handler) bool { return h.Name == name })
		if stays || !slices.Contains(w.Owned, name) {
			return nil
		}
		return fault.New(payload.Conflict, "%s:%d: default_runtime_name is %s, without which containerd would not serve the CRI; name another handler there first", f.path, f.doc.Line(at...), name)
	}
	return nil
}

// GoneBack is a file of ours that is the last one with a table of the CRI; "" if there is
// none. containerd 2.x adds it to the others. 1.x, where a node has gone back to that, has it
// in the place of all of them, and serves no CRI.
func (c *Config) GoneBack() string {
	for _, f := range slices.Backward(c.files) {
		if f.doc.Get(plugin(f.version)...) == nil {
			continue
		}
		if c.DropIns == "" && f.version < 3 && Own(filepath.Base(f.path)) {
			return f.path
		}
		return ""
	}
	return ""
}
