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
	"fairlead.run/internal/installer/fault"
	"fairlead.run/internal/installer/tomledit"
)

// Layout is where a node's containerd has its configuration.
type Layout struct {
	// Root is in front of every path, for a container that sees the node there.
	Root string
	// Main is the file that containerd is started with.
	Main string
	// Generated says that Main is written by the distribution, and not to be
	// edited.
	Generated bool
	// DropIns is a folder that the distribution reads, whatever Main says.
	DropIns string
	// Template is the file that the distribution makes Main of, with Seed in it if
	// it is not there.
	Template, Seed string
	// Origin is what containerd reads now in place of Main, and cannot be written:
	// Main is made of it.
	Origin string
	// Starter is the file by which systemd starts containerd with a Main that was made
	// so, and Start its content; "" and nil where that is not known.
	Starter string
	Start   []byte
}

// MaxVersion is the newest version of the configuration that is understood.
const MaxVersion = 4

// maxFile is the largest file that is read, in bytes.
const maxFile = 4 << 20

// Config is a configuration with all that it imports.
type Config struct {
	Layout
	// Version is that of the main file; 0 without one.
	Version int
	// Dangling are imports of files that are not there.
	Dangling []string
	// files are the main one and its imports, in the order in which they count.
	files []*file
	// fresh says that the main file is in memory alone, made of the origin.
	fresh bool
}

// file is one file of a configuration. Its path is that on the node.
type file struct {
	path    string
	data    []byte
	doc     *tomledit.File
	version int
}

// Load reads the configuration. One that is not there is empty.
func Load(l Layout) (*Config, error) {
	c := &Config{Layout: l}
	pending := []string{l.Main}
	seen := map[string]bool{}
	for len(pending) > 0 {
		path := pending[0]
		pending = pending[1:]
		if seen[path] {
			continue
		}
		seen[path] = true
		f, err := c.read(path)
		if path == l.Main && l.Origin != "" {
			f, err = c.mainOver(f, err)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist) && path != l.Main:
			c.Dangling = append(c.Dangling, path)
			continue
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		}
		c.files = append(c.files, f)
		imports, err := c.imports(f)
		if err != nil {
			return nil, err
		}
		pending = append(pending, imports...)
	}
	if m := c.main(); m != nil {
		c.Version = m.version
	}
	return c, nil
}

// mainOver is the main file where the daemon still reads the origin: the one that was
// made before, or a new one.
func (c *Config) mainOver(f *file, err error) (*file, error) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c.adopt()
	case err == nil && !adopted(f.data):
		return nil, fault.New(payload.UnsupportedNode, "containerd is started with %s, which is read-only, and nobody reads %s; start it with that, or take that file away", c.Origin, c.Main)
	}
	return f, err
}

func (c *Config) main() *file {
	if len(c.files) > 0 && c.files[0].path == c.Main {
		return c.files[0]
	}
	return nil
}

func (c *Config) read(path string) (*file, error) {
	data, err := c.bytes(path)
	if err != nil {
		return nil, err
	}
	doc, err := tomledit.Parse(path, data)
	if err != nil {
		return nil, fault.New(payload.UnsupportedNode, "read containerd's configuration: %w", err)
	}
	f := &file{path: path, data: data, doc: doc, version: 1}
	if v := doc.Get("version"); v != nil {
		n, ok := v.(int64)
		if !ok || n < 0 {
			return nil, fault.New(payload.UnsupportedNode, "%s: version is %v, which is no version of a configuration", path, v)
		}
		f.version = max(1, int(n))
	}
	if f.version > MaxVersion {
		return nil, fault.New(payload.UnsupportedNode, "%s has version %d, and only versions up to %d are understood here; use a newer Fairlead", path, f.version, MaxVersion)
	}
	return f, nil
}

// bytes reads a regular file of the node.
func (c *Config) bytes(path string) ([]byte, error) {
	at := inroot.Join(c.Root, path)
	info, err := os.Stat(at)
	if err != nil {
		return nil, fmt.Errorf("read containerd's configuration: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fault.New(payload.UnsupportedNode, "%s is no regular file of at most %d bytes", path, maxFile)
	}
	return os.ReadFile(at)
}

// imports are the files that one imports: as containerd does, only a path with *
// is a pattern.
func (c *Config) imports(f *file) ([]string, error) {
	var all []string
	for _, p := range patterns(f) {
		if !strings.Contains(p, "*") {
			all = append(all, p)
			continue
		}
		found, err := c.glob(p)
		if err != nil {
			return nil, fault.New(payload.UnsupportedNode, "%s imports %q, which is no pattern: %w", f.path, p, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// glob is filepath.Glob on the node: links in folders that the pattern names are
// followed below the root.
func (c *Config) glob(pattern string) ([]string, error) {
	dir := filepath.Dir(pattern)
	if strings.ContainsAny(dir, `*?[\`) {
		root := inroot.Join(c.Root, "/")
		found, err := filepath.Glob(filepath.Join(root, pattern))
		for n := range found {
			found[n] = filepath.Join("/", strings.TrimPrefix(found[n], root))
		}
		return found, err
	}
	found, err := filepath.Glob(filepath.Join(inroot.Join(c.Root, dir), filepath.Base(pattern)))
	for n := range found {
		found[n] = filepath.Join(dir, filepath.Base(found[n]))
	}
	return found, err
}

// patterns are what a file imports, with absolute paths.
func patterns(f *file) []string {
	list, _ := f.doc.Get("imports").([]any)
	var all []string
	for _, v := range list {
		p, ok := v.(string)
		if !ok {
			continue
		}
		p = filepath.Clean(p)
		if !filepath.IsAbs(p) {
			p = filepath.Join(filepath.Dir(f.path), p)
		}
		all = append(all, p)
	}
	return all
}

// plugin is the path of the table of the CRI plugin, by version.
func plugin(version int) []string {
	switch version {
	case 0, 1:
		return []string{"plugins", "cri"}
	case 2:
		return []string{"plugins", "io.containerd.grpc.v1.cri"}
	}
	return []string{"plugins", "io.containerd.cri.v1.runtime"}
}

func runtimes(version int, more ...string) []string {
	return append(append(plugin(version), "containerd", "runtimes"), more...)
}

// Place is where a handler is configured.
type Place struct {
	// File and Line are where it begins.
	File string
	Line int
	// Type and Path are what it says of the shim.
	Type, Path string
	// Program and Config are what its options say: the program that runc's shim starts in
	// the place of runc, and the configuration of the runtime, for other shims.
	Program, Config string
}

// Handlers are those that the configuration names, by name. Those of old tables are among
// them where the containerd that reads it is of 1.x, or not known and so 0.
func (c *Config) Handlers(major int) map[string]Place {
	all := map[string]Place{}
	for _, f := range c.files {
		tables := map[string][]string{}
		if major < 2 {
			tables = oldTables(f)
		}
		for name := range f.doc.Table(runtimes(f.version)...) {
			tables[name] = runtimes(f.version, name)
		}
		for name, at := range tables {
			p := Place{File: f.path, Line: f.doc.Line(at...)}
			p.Type, _ = f.doc.Get(append(slices.Clone(at), "runtime_type")...).(string)
			p.Path, _ = f.doc.Get(append(slices.Clone(at), "runtime_path")...).(string)
			p.Program, _ = f.doc.Get(append(slices.Clone(at), "options", "BinaryName")...).(string)
			p.Config, _ = f.doc.Get(append(slices.Clone(at), "options", "ConfigPath")...).(string)
			all[name] = p
		}
	}
	return all
}

// Disabled names the file that switches the CRI off, or is "".
func (c *Config) Disabled() string {
	names := []string{"cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"}
	for _, f := range c.files {
		list, _ := f.doc.Get("disabled_plugins").([]any)
		for _, v := range list {
			if s, _ := v.(string); slices.Contains(names, s) {
				return f.path
			}
		}
	}
	return ""
}

// Ignored says what of the configuration is read by nobody, because it has the
// names of another version, for people.
func (c *Config) Ignored() []string {
	var all []string
	for _, f := range c.files {
		for v := 1; v <= 3; v++ {
			same := slices.Equal(plugin(v), plugin(f.version)) || v == 2 && f.version > 2 && onlyServer(f.doc.Table(plugin(v)...))
			if line := f.doc.Line(plugin(v)...); !same && f.doc.Get(plugin(v)...) != nil {
				all = append(all, fmt.Sprintf("%s:%d: %s is a name of version %d, and the file has version %d", f.path, line, tomledit.Path(plugin(v)...), v, f.version))
			}
		}
	}
	return all
}

// server is what of the CRI plugin's table has kept its name after version 2, and is in
// the file that containerd itself writes.
var server = []string{"disable_tcp_service", "stream_server_address", "stream_server_port", "stream_idle_timeout", "enable_tls_streaming", "x509_key_pair_streaming"}

// onlyServer says whether a table of that name has nothing else in it.
func onlyServer(table map[string]any) bool {
	for key := range table {
		if !slices.Contains(server, key) {
			return false
		}
	}
	return table != nil
}

// Files are the paths of all files that were read.
func (c *Config) Files() []string {
	var all []string
	for _, f := range c.files {
		all = append(all, f.path)
	}
	return all
}
