package containerd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/inroot"
	"fairlead.run/internal/installer/cri"
	"fairlead.run/internal/installer/fault"
	"fairlead.run/internal/installer/tomledit"
)

// Want is what a type of runtime needs. Without handlers, all of it is taken out.
type Want struct {
	Type     string
	Handlers []Handler
	// Owned are handlers that were written for this type before, and Base is the folder of
	// what they run; "" if there are none.
	Owned []string
	Base  string
	// Written are files that were written for this type before.
	Written []string
}

// Handler is one handler, with absolute paths on the node.
type Handler struct {
	Name string
	payload.ContainerdHandler
}

// Daemon is the containerd that reads the configuration.
type Daemon struct {
	// Major and Minor are of its version.
	Major, Minor int
	// Loaded are the handlers that it has now.
	Loaded map[string]cri.Loaded
}

// Change is a file with its new content; nil takes it away.
type Change struct {
	Path string
	Data []byte
}

// madeHere is how a main file begins that was not there before.
const madeHere = "# Made by fairlead install, which takes it away again with the last runtime.\n"

// defaults is the block with the handlers that containerd has by itself, as long
// as nobody names others.
const defaults = "defaults"

// Plan says which files to change. Its result is empty if all is as wanted.
func (c *Config) Plan(d Daemon, w Want) ([]Change, error) {
	if err := errors.Join(c.check(d, w), c.needed(d, w)); err != nil {
		return nil, err
	}
	w.Handlers = For(w.Handlers)
	cleared, err := c.cleared(d, w)
	if err != nil {
		return nil, err
	}
	changes, err := c.handlers(d, w)
	if err != nil {
		return nil, err
	}
	return c.started(w, merged(cleared, changes))
}

func (c *Config) handlers(d Daemon, w Want) ([]Change, error) {
	switch {
	case c.Template != "":
		return c.template(w)
	case c.DropIns != "":
		return c.dropIn(d, w, c.DropIns)
	case d.Major >= 2:
		return c.imported(d, w)
	case c.Generated:
		return nil, fault.New(payload.UnsupportedNode, "%s is written by the distribution, and there is no known way to add to it", c.Main)
	}
	return c.edit(d, w)
}

// For is handlers as containerd has to be told them.
func For(all []Handler) []Handler {
	out := slices.Clone(all)
	for n := range out {
		out[n].ContainerdHandler = out[n].ByPath()
	}
	return out
}

// Startable says why containerd would not serve the CRI again after a restart.
func (c *Config) Startable() error {
	if len(c.Dangling) > 0 {
		return fault.New(payload.UnsupportedNode, "containerd's configuration imports %s, which is not there, so that containerd would not start again; take the import out or put the file back", c.Dangling[0])
	}
	return c.enabled()
}

func (c *Config) enabled() error {
	if f := c.Disabled(); f != "" {
		return fault.New(payload.UnsupportedNode, "%s has the CRI in disabled_plugins; take it out there and restart containerd", f)
	}
	return nil
}

// check refuses what cannot be right before anything is computed.
func (c *Config) check(d Daemon, w Want) error {
	if len(w.Handlers) > 0 {
		if err := c.enabled(); err != nil {
			return err
		}
	}
	if c.Version > 2 && d.Major < 2 {
		return fault.New(payload.UnsupportedNode, "%s has version %d, which containerd %d.%d does not read; write it with version = 2", c.Main, c.Version, d.Major, d.Minor)
	}
	if all := c.Ignored(); len(all) > 0 && len(w.Handlers) > 0 && !c.Generated {
		return fault.New(payload.UnsupportedNode, "%s; put the right version at the top of the file, or containerd config migrate writes it anew", all[0])
	}
	for _, h := range w.Handlers {
		var major, minor int
		if _, err := fmt.Sscanf(h.MinVersion, "%d.%d", &major, &minor); err == nil && (d.Major < major || d.Major == major && d.Minor < minor) {
			return fault.New(payload.UnsupportedNode, "the shim of handler %s works with containerd %s or newer, and this is %d.%d; upgrade containerd, or use an older payload", h.Name, h.MinVersion, d.Major, d.Minor)
		}
		if h.Snapshotter != "" && d.Major < 2 && d.Minor < 7 {
			return fault.New(payload.UnsupportedNode, "handler %s wants the snapshotter %s, and containerd %d.%d has one for all handlers; it takes 1.7", h.Name, h.Snapshotter, d.Major, d.Minor)
		}
	}
	return nil
}

// foreign says who has a handler that is wanted.
func (c *Config) foreign(w Want, own string) error {
	for _, h := range w.Handlers {
		for _, f := range c.files {
			at := runtimes(f.version, h.Name)
			if f.path == own || f.doc.Get(at...) == nil || slices.Contains(w.Owned, h.Name) {
				continue
			}
			return foreignAt(f, h.Name, at)
		}
		for _, f := range c.files {
			if at, ok := oldTables(f)[h.Name]; ok {
				return foreignAt(f, h.Name, at)
			}
		}
	}
	return nil
}

func foreignAt(f *file, handler string, at []string) error {
	return fault.New(payload.Conflict, "%s:%d: handler %s is configured by somebody else; take it out there, or leave it out of the payload", f.path, f.doc.Line(at...), handler)
}

// template adds a block to what the distribution makes its file of. That is a text
// with holes, and no TOML.
func (c *Config) template(w Want) ([]Change, error) {
	old, err := c.bytes(c.Template)
	absent := errors.Is(err, fs.ErrNotExist)
	if err != nil && !absent {
		return nil, err
	}
	if len(w.Handlers) == 0 {
		if absent {
			return nil, nil
		}
		data, err := tomledit.CutBlock(c.Template, old, w.Type)
		if err == nil && string(data) == c.Seed {
			data = nil
		}
		return changed(c.Template, old, data, err)
	}
	if !tomledit.HasBlock(old, w.Type) {
		if err := c.foreign(w, ""); err != nil {
			return nil, err
		}
	}
	if absent {
		old = []byte(c.Seed)
	}
	data, err := tomledit.AddBlock(c.Template, old, w.Type, render(c.Version, w.Handlers))
	if absent {
		old = nil
	}
	return changed(c.Template, old, data, err)
}

func changed(path string, old, data []byte, err error) ([]Change, error) {
	if err != nil || old != nil && data != nil && string(old) == string(data) {
		return nil, err
	}
	return []Change{{Path: path, Data: data}}, nil
}

// ownName is the file of a type in a folder of drop-ins, and ownPattern all such.
func ownName(kind string) string { return "fairlead-" + kind + ".toml" }

const ownPattern = "fairlead-*.toml"

// Own says whether a file in a folder of drop-ins has the name of one of ours.
func Own(name string) bool {
	ok, err := filepath.Match(ownPattern, name)
	return ok && err == nil
}

// dropIn writes a file of our own into a folder.
func (c *Config) dropIn(d Daemon, w Want, dir string) ([]Change, error) {
	path := filepath.Join(dir, ownName(w.Type))
	old, err := c.bytes(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(w.Handlers) == 0 {
		if old == nil {
			return nil, nil
		}
		return []Change{{Path: path}}, nil
	}
	if err := errors.Join(c.foreign(w, path), c.overridden(w, path)); err != nil {
		return nil, err
	}
	version := c.Version
	if version == 0 {
		version = newest(d)
	}
	text := fmt.Sprintf("# Written by fairlead install; what is changed here is put back.\nversion = %d\n\n%s", version, render(version, w.Handlers))
	return changed(path, old, []byte(text), nil)
}

// newest is the version of a file that is made.
func newest(d Daemon) int {
	if d.Major >= 2 {
		return 3
	}
	return 2
}

// imported writes a file of our own and sees to it that the main file imports it.
func (c *Config) imported(d Daemon, w Want) ([]Change, error) {
	dir, has := c.importDir(w.Type)
	main := c.main()
	if len(w.Handlers) == 0 {
		return c.unimport(w, dir)
	}
	drop, err := c.dropIn(d, w, dir)
	if err != nil || has {
		return drop, err
	}
	if c.Generated {
		return nil, fault.New(payload.UnsupportedNode, "%s is written by the distribution and imports no folder", c.Main)
	}
	doc, old := (*tomledit.File)(nil), []byte(nil)
	if main == nil {
		if doc, err = tomledit.Parse(c.Main, []byte(fmt.Sprintf("%sversion = %d\n", madeHere, newest(d)))); err != nil {
			return nil, err
		}
	} else {
		doc, old = main.doc, main.data
		for _, p := range patterns(main) {
			if ok, err := filepath.Match(p, dir); ok && err == nil {
				return nil, fault.New(payload.UnsupportedNode, "%s imports %q, by which containerd would read the folder %s as a file; have it import *.toml", c.Main, p, dir)
			}
		}
	}
	data, err := doc.AddElement("imports", filepath.Join(dir, ownPattern))
	if err != nil {
		return nil, err
	}
	edits, err := changed(c.Main, old, data, nil)
	return append(drop, edits...), err
}

// importDir is the folder for our file, and whether the main file reads it there. One
// that is not beside the main file is somebody else's, and not mounted in containers.
func (c *Config) importDir(kind string) (string, bool) {
	if m := c.main(); m != nil {
		for _, p := range patterns(m) {
			dir := filepath.Dir(p)
			if !strings.HasPrefix(dir+"/", filepath.Dir(c.Main)+"/") {
				continue
			}
			if ok, err := filepath.Match(filepath.Base(p), ownName(kind)); err == nil && ok && strings.Contains(p, "*") && !strings.ContainsAny(dir, "*?[") {
				return dir, true
			}
		}
	}
	return filepath.Join(filepath.Dir(c.Main), "conf.d"), false
}

// unimport takes our file away, and the import with the last one.
func (c *Config) unimport(w Want, dir string) ([]Change, error) {
	drop, err := c.dropIn(Daemon{}, w, dir)
	if err != nil {
		return nil, err
	}
	left, err := c.others(dir, w.Type)
	if err != nil {
		return nil, fmt.Errorf("look for other runtimes in %s: %w", dir, err)
	}
	main := c.main()
	if main == nil || len(left) > 0 {
		return drop, nil
	}
	data := main.doc.CutElement("imports", filepath.Join(dir, ownPattern))
	if pristine(data) {
		data = nil
	}
	edits, err := changed(c.Main, main.data, data, nil)
	return append(edits, drop...), err
}

// edit writes a block into the file whose table of the CRI plugin counts.
func (c *Config) edit(d Daemon, w Want) ([]Change, error) {
	if len(c.files) == 0 && len(w.Handlers) == 0 {
		return nil, nil
	}
	f, err := c.effective(d)
	if err != nil {
		return nil, err
	}
	data, err := tomledit.CutBlock(f.path, f.data, w.Type)
	if err != nil {
		return nil, err
	}
	// What was ours and is no longer in the block has lost the comments.
	for _, name := range w.Owned {
		doc, err := tomledit.Parse(f.path, data)
		if err != nil {
			return nil, err
		}
		if data, err = doc.CutTables(runtimes(f.version, name)...); err != nil {
			return nil, err
		}
	}
	if len(w.Handlers) == 0 {
		return c.cut(f, data)
	}
	doc, err := tomledit.Parse(f.path, data)
	if err != nil {
		return nil, err
	}
	rest := Config{files: []*file{{path: f.path, data: data, doc: doc, version: f.version}}}
	if err := rest.foreign(w, ""); err != nil {
		return nil, err
	}
	if err := doc.Closed(runtimes(f.version, "x")...); err != nil {
		return nil, fault.New(payload.UnsupportedNode, "%w", err)
	}
	old := f.data
	if !tomledit.HasBlock(old, w.Type) {
		old = data // a block that is there is replaced where it stands
	}
	if doc.Get(runtimes(f.version)...) == nil {
		if data, err = tomledit.AddBlock(f.path, old, defaults, render(f.version, kept(d, w, f))); err != nil {
			return nil, err
		}
		old = data
	}
	data, err = tomledit.AddBlock(f.path, old, w.Type, render(f.version, w.Handlers))
	if err != nil {
		return nil, err
	}
	if _, err := tomledit.Parse(f.path, data); err != nil {
		return nil, fault.New(payload.UnsupportedNode, "a handler cannot be added: %w", err)
	}
	return changed(f.path, f.data, data, nil)
}

// cut finishes what takes a type out.
func (c *Config) cut(f *file, data []byte) ([]Change, error) {
	data, err := cutDefaults(f.path, data)
	if err != nil {
		return nil, err
	}
	if pristine(data) {
		data = nil
	}
	return changed(f.path, f.data, data, nil)
}

// effective is the file whose table of the CRI plugin containerd 1 uses: of those
// that have one, the last, as it takes the place of the others. Files of our own are for
// newer ones, and go.
func (c *Config) effective(d Daemon) (*file, error) {
	for _, f := range slices.Backward(c.files) {
		if f.doc.Get(plugin(f.version)...) != nil && !Own(filepath.Base(f.path)) {
			return f, nil
		}
	}
	if m := c.main(); m != nil {
		return m, nil
	}
	text := fmt.Sprintf("%sversion = %d\n", madeHere, newest(d))
	if _, err := os.Stat(inroot.Join(c.Root, c.Main)); err == nil {
		return nil, fault.New(payload.UnsupportedNode, "%s could not be read", c.Main)
	}
	doc, err := tomledit.Parse(c.Main, []byte(text))
	return &file{path: c.Main, data: []byte(text), doc: doc, version: newest(d)}, err
}

// Pending are handlers that containerd serves and would not after a restart, as its
// files name others and no longer these.
func (c *Config) Pending(d Daemon) []string {
	if c.Generated {
		return nil // its files are written anew before it starts
	}
	named := map[string]bool{}
	for _, f := range c.counting(d) {
		for name := range f.doc.Table(runtimes(f.version)...) {
			named[name] = true
		}
	}
	byItself := len(named) == 0 // then it has others, too, but none by the old tables
	for _, f := range c.counting(d) {
		for name := range oldTables(f) {
			named[name] = named[name] || d.Major < 2
		}
	}
	named["runc"] = named["runc"] || d.Major >= 2
	var gone []string
	for name := range d.Loaded {
		if byOld := name == "default" || name == "untrusted"; !named[name] && (!byItself || byOld && d.Major < 2) {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	return gone
}

// kept are the handlers that containerd has now and would drop as soon as another
// one is named in a file. Those that have tables of their own stay.
func kept(d Daemon, w Want, f *file) []Handler {
	var all []Handler
	for name, l := range d.Loaded {
		_, stays := oldTables(f)[name]
		mine := stays || slices.ContainsFunc(w.Handlers, func(h Handler) bool { return h.Name == name }) || slices.Contains(w.Owned, name)
		if mine {
			continue
		}
		h := Handler{Name: name, ContainerdHandler: payload.ContainerdHandler{RuntimeType: l.Type, RuntimePath: l.Path}}
		systemd, _ := l.Options["SystemdCgroup"].(bool)
		binary, _ := l.Options["BinaryName"].(string)
		if systemd || binary != "" {
			h.Options = &payload.ContainerdOptions{BinaryName: binary, SystemdCgroup: &systemd}
		}
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b Handler) int { return strings.Compare(a.Name, b.Name) })
	return all
}
