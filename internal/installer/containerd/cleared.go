package containerd

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"

	"fairlead.run/internal/inroot"
	"fairlead.run/internal/installer/tomledit"
)

// cleared takes out what was written for a type where it would not be written now: before
// containerd was upgraded, or before another file came to count. The files in memory are
// without it from then on.
func (c *Config) cleared(d Daemon, w Want) ([]Change, error) {
	keep, err := c.place(d, w.Type)
	if err != nil {
		return nil, err
	}
	var all []Change
	var left []*file
	here := append(c.Files(), keep, c.Main)
	for _, f := range c.files {
		switch {
		case f.path == keep:
			left = append(left, f)
		case filepath.Base(f.path) == ownName(w.Type):
			all = append(all, Change{Path: f.path})
		case c.Generated: // of what is written here, before it starts
			left = append(left, f)
		default:
			without, err := c.without(f, w)
			if err != nil {
				return nil, err
			}
			left = append(left, without)
			if without != f {
				all = append(all, Change{without.path, without.data})
			}
		}
	}
	c.files = left
	if all, err = c.notImported(w.Type, keep, all); err != nil {
		return nil, err
	}
	old, err := c.former(w, here)
	return merged(old, all), err
}

// place is the file that handlers of a type are written to now; "" where none is.
func (c *Config) place(d Daemon, kind string) (string, error) {
	switch {
	case c.Template != "":
		return c.Template, nil
	case c.DropIns != "":
		return filepath.Join(c.DropIns, ownName(kind)), nil
	case d.Major >= 2:
		dir, _ := c.importDir(kind)
		return filepath.Join(dir, ownName(kind)), nil
	case c.Generated || len(c.files) == 0:
		return "", nil
	}
	f, err := c.effective(d)
	if err != nil {
		return "", err
	}
	return f.path, nil
}

// without is a file without what was written for a type; the same one if there is nothing.
func (c *Config) without(f *file, w Want) (*file, error) {
	data, err := tomledit.CutBlock(f.path, f.data, w.Type)
	if err != nil {
		return nil, err
	}
	for _, name := range w.Owned {
		doc, err := tomledit.Parse(f.path, data)
		if err != nil {
			return nil, err
		}
		// Some tool has written the file anew, as containerd config migrate does.
		if at := runtimes(f.version, name); w.within(doc, at) {
			if data, err = doc.CutTables(at...); err != nil {
				return nil, err
			}
		}
	}
	if bytes.Equal(data, f.data) {
		return f, nil
	}
	if data, err = cutDefaults(f.path, data); err != nil {
		return nil, err
	}
	doc, err := tomledit.Parse(f.path, data)
	return &file{path: f.path, data: data, doc: doc, version: f.version}, err
}

// within says whether a table is a handler that runs something of the type's own folder.
// Others are somebody's who has a handler of that name, or adds to it.
func (w Want) within(doc *tomledit.File, at []string) bool {
	for _, key := range [][]string{{"runtime_type"}, {"runtime_path"}, {"options", "BinaryName"}, {"options", "ConfigPath"}} {
		path, _ := doc.Get(slices.Concat(at, key)...).(string)
		if w.Base != "" && strings.HasPrefix(path, w.Base+"/") {
			return true
		}
	}
	return false
}

// cutDefaults takes the handlers that containerd has by itself out, if no type has a block
// beside them any more.
func cutDefaults(path string, data []byte) ([]byte, error) {
	if strings.Count(string(data), "# fairlead: begin ") != 1 {
		return data, nil
	}
	return tomledit.CutBlock(path, data, defaults)
}

// notImported takes the import of our files out of the main file with the last of those that
// are removed.
func (c *Config) notImported(kind, keep string, changes []Change) ([]Change, error) {
	m := c.main()
	if m == nil || c.Generated {
		return changes, nil
	}
	for _, x := range changes {
		dir := filepath.Dir(x.Path)
		if x.Data != nil || dir == filepath.Dir(keep) {
			continue
		}
		left, err := c.others(dir, kind)
		if err != nil || len(left) > 0 {
			return changes, err
		}
		data := m.doc.CutElement("imports", filepath.Join(dir, ownPattern))
		if bytes.Equal(data, m.data) {
			continue
		}
		doc, err := tomledit.Parse(m.path, data)
		if err != nil {
			return nil, err
		}
		*m = file{path: m.path, data: data, doc: doc, version: m.version}
		changes = merged(changes, []Change{{m.path, data}})
	}
	return changes, nil
}

// others are files of other types of ours in a folder.
func (c *Config) others(dir, kind string) ([]string, error) {
	left, err := filepath.Glob(filepath.Join(inroot.Join(c.Root, dir), ownPattern))
	return slices.DeleteFunc(left, func(p string) bool { return filepath.Base(p) == ownName(kind) }), err
}

// former takes out what is in files that were written for the type and are no longer read, or
// not for handlers. One that is gone, or cannot be read, is left.
func (c *Config) former(w Want, here []string) ([]Change, error) {
	var all []Change
	var dirs []string
	written := slices.DeleteFunc(slices.Clone(w.Written), func(path string) bool { return slices.Contains(here, path) })
	for _, path := range written {
		if _, err := c.bytes(path); err == nil && filepath.Base(path) == ownName(w.Type) {
			all = append(all, Change{Path: path})
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	for _, path := range written {
		data, err := c.bytes(path)
		if err != nil || filepath.Base(path) == ownName(w.Type) {
			continue
		}
		left, err := c.formerly(&file{path: path, data: data}, w, dirs)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(left, data) {
			if pristine(left) || string(left) == c.Seed {
				left = nil
			}
			all = append(all, Change{path, left})
		}
	}
	return all, nil
}

// formerly is the content of such a file without what was written for a type, whose own files
// go from some folders. A template is no TOML, and has blocks alone.
func (c *Config) formerly(f *file, w Want, dirs []string) ([]byte, error) {
	doc, err := c.read(f.path)
	if err != nil {
		data, err := tomledit.CutBlock(f.path, f.data, w.Type)
		if err != nil {
			return nil, err
		}
		return cutDefaults(f.path, data)
	}
	without, err := c.without(doc, w)
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		left, err := c.others(dir, w.Type)
		if err != nil || len(left) > 0 {
			return without.data, err
		}
		data := without.doc.CutElement("imports", filepath.Join(dir, ownPattern))
		next, err := tomledit.Parse(f.path, data)
		if err != nil {
			return nil, err
		}
		without = &file{path: f.path, data: data, doc: next, version: without.version}
	}
	return without.data, nil
}

// merged are changes with more of them, which count where both change a file.
func merged(changes, more []Change) []Change {
	rest := slices.DeleteFunc(slices.Clone(changes), func(x Change) bool {
		return slices.ContainsFunc(more, func(y Change) bool { return x.Path == y.Path })
	})
	return append(rest, more...)
}
