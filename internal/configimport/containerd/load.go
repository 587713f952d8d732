package containerd

import (
	"fmt"
	"path/filepath"
	"strings"

	"fairlead.run/internal/configimport/tree"
	"fairlead.run/internal/errdefs"
)

// DefaultPath is where containerd has its configuration.
const DefaultPath = "/etc/containerd/config.toml"

// Bounds of what is read; each file has one of its own.
const (
	newest      = 4   // version of the format
	firstMerged = 3   // of containerd 2, which merges sections; containerd 1 replaces them
	maxFiles    = 256 // with all imports
	maxBytes    = 8 << 20
)

// loaded is all files as one.
type loaded struct {
	top   *tree.Node
	files []string
	// sections are the plugins, by the names that files have for them, and
	// repeated is where a file has one again.
	sections map[string]bool
	repeated []*tree.Node
}

func nothing() *loaded {
	return &loaded{top: &tree.Node{Table: map[string]*tree.Node{}}, sections: map[string]bool{}}
}

// load reads a file and what it imports, each once. The order is containerd's:
// a file comes after the one that imports it, and after those that were listed
// before it.
func load(path string) (*loaded, error) {
	l := nothing()
	seen := map[string]bool{}
	pending := []string{path}
	size := 0
	for len(pending) > 0 {
		path, pending = filepath.Clean(pending[0]), pending[1:]
		if seen[path] {
			continue
		}
		seen[path] = true
		if len(seen) > maxFiles {
			return nil, fmt.Errorf("%s: more than %d files are imported: %w", path, maxFiles, errdefs.ErrInvalidArgument)
		}
		file, err := tree.Read(path)
		if err != nil {
			return nil, err
		}
		if size += file.Size; size > maxBytes {
			return nil, fmt.Errorf("%s: together with what was imported before, this is more than %d bytes: %w", path, maxBytes, errdefs.ErrInvalidArgument)
		}
		imports, err := l.add(path, file)
		if err != nil {
			return nil, err
		}
		pending = append(pending, imports...)
	}
	return l, nil
}

// add merges one file and says what it imports.
func (l *loaded) add(path string, file *tree.Node) ([]string, error) {
	var take tree.Taker
	imports, at := take.Strings(file.At("imports")), file.At("imports")
	delete(file.Table, "imports")
	version, _ := take.Int(file.At("version"))
	if version > newest || version < 0 {
		take.Refuse(file.At("version"), "version %d is not known here; there are 2, 3 and %d", version, newest)
	}
	if err := take.Err(); err != nil {
		return nil, err
	}
	if version < firstMerged {
		l.overlap(file)
	}
	migrate(file, version)
	l.merge(file)
	l.files = append(l.files, path)
	return resolve(path, imports, at)
}

// resolve is the paths that imports name: those with a * are patterns, and those
// that are not absolute are beside the file.
func resolve(parent string, imports []string, at *tree.Node) ([]string, error) {
	var out []string
	for _, path := range imports {
		if path = filepath.Clean(path); !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(parent), path)
		}
		if !strings.Contains(path, "*") {
			out = append(out, path)
			continue
		}
		found, err := filepath.Glob(path)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: imports: %q: %w", at.File, at.Line, path, err)
		}
		out = append(out, found...)
	}
	return out, nil
}

// overlap notes the plugins that more than one file has something of.
func (l *loaded) overlap(file *tree.Node) {
	for _, id := range file.At("plugins").Names() {
		if l.sections[id] {
			l.repeated = append(l.repeated, file.At("plugins", id))
		}
		l.sections[id] = true
	}
}

// merge puts a file over those before it. Plugins are merged key by key. Above
// them containerd merges structs: what is zero changes nothing, lists grow, and
// of some tables each entry is replaced as a whole.
func (l *loaded) merge(file *tree.Node) {
	for name, theirs := range file.Table {
		ours := l.top.Table[name]
		switch {
		case name == "plugins" && ours.IsTable() && theirs.IsTable():
			ours.Merge(theirs)
		case ours.IsTable() && theirs.IsTable():
			mergeStruct(ours, theirs)
		default:
			put(l.top, name, theirs)
		}
	}
}

func mergeStruct(ours, theirs *tree.Node) {
	for name, n := range theirs.Table {
		put(ours, name, n)
	}
}

// put sets one key of what containerd has a struct for.
func put(table *tree.Node, name string, n *tree.Node) {
	ours := table.Table[name]
	list, isList := n.Value.([]any)
	switch {
	case ours == nil:
		table.Table[name] = n
	case isList:
		have, _ := ours.Value.([]any)
		n.Value = union(have, list)
		table.Table[name] = n
	case n.Value != nil && n.IsZero():
	default:
		table.Table[name] = n
	}
}

func union(have, list []any) []any {
	out := append([]any(nil), have...)
	known := map[string]bool{}
	for _, v := range out {
		known[fmt.Sprintf("%T %v", v, v)] = true
	}
	for _, v := range list {
		if key := fmt.Sprintf("%T %v", v, v); !known[key] {
			known[key] = true
			out = append(out, v)
		}
	}
	return out
}
