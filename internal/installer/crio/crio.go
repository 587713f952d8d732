// Package crio says which files of CRI-O's configuration have to change so that it
// serves a handler or no longer does.
//
// CRI-O reads every file in its folder of drop-ins and in folders below, those that
// are half written too, keeps its old configuration if one of them is garbage, and
// then does not start again. So what is rendered is read back before anybody writes it, and
// strangers in the folder are told. It writes nothing and signals nobody.
package crio

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/inroot"
	"fairlead.run/internal/installer/fault"
	"fairlead.run/internal/installer/tomledit"
)

// Layout is where a node's CRI-O has its configuration.
type Layout struct {
	// Root is in front of every path, for a container that sees the node there.
	Root string
	// Main is the file that is read first, and DropIns the folder that is read
	// after it, in the order of names. Without a name there is none.
	Main, DropIns string
}

// Config is a configuration.
type Config struct {
	Layout
	files []file
	// Broken are files that CRI-O will not start with, with what is wrong.
	Broken []string
	// Temporary are files that look half written, and are read all the same.
	Temporary []string
}

type file struct {
	path string
	doc  *tomledit.File
}

// Handler is one handler, with absolute paths on the node.
type Handler struct {
	Name string
	payload.CRIOHandler
}

// Change is a file with its new content; nil takes it away.
type Change struct {
	Path string
	Data []byte
}

// Load reads the configuration.
func Load(l Layout) (*Config, error) {
	c := &Config{Layout: l}
	paths, err := c.dropIns()
	if err != nil {
		return nil, fmt.Errorf("read CRI-O's configuration: %w", err)
	}
	if l.Main != "" {
		paths = append([]string{l.Main}, paths...)
	}
	for _, path := range paths {
		if err := c.add(path); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// dropIns are the files in the folder of drop-ins, and in those in that.
func (c *Config) dropIns() ([]string, error) {
	if c.DropIns == "" {
		return nil, nil
	}
	var all []string
	top := inroot.Join(c.Root, c.DropIns)
	err := filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if path == top {
			return &fs.PathError{Op: "read", Path: c.DropIns, Err: syscall.ENOTDIR}
		}
		path = filepath.Join(c.DropIns, strings.TrimPrefix(path, top))
		all = append(all, path)
		if filepath.Ext(e.Name()) != ".conf" && filepath.Ext(e.Name()) != ".toml" || strings.HasPrefix(e.Name(), ".") {
			c.Temporary = append(c.Temporary, path)
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	return all, err
}

func (c *Config) add(path string) error {
	data, err := os.ReadFile(inroot.Join(c.Root, path))
	if errors.Is(err, fs.ErrNotExist) {
		_, gone := os.Lstat(inroot.JoinParent(c.Root, path))
		if path == c.Main || gone != nil {
			return nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EISDIR) {
		c.Broken = append(c.Broken, path+": a link to a folder or to nothing, which CRI-O cannot read")
		return nil
	}
	if err != nil {
		return fmt.Errorf("read CRI-O's configuration: %w", err)
	}
	doc, err := tomledit.Parse(path, data)
	if err != nil {
		c.Broken = append(c.Broken, err.Error())
		return nil
	}
	c.files = append(c.files, file{path: path, doc: doc})
	return nil
}

// Files is how many files were read.
func (c *Config) Files() int { return len(c.files) }

func at(more ...string) []string {
	return append([]string{"crio", "runtime", "runtimes"}, more...)
}

// Handlers are those that the configuration names, with the file that does.
func (c *Config) Handlers() map[string]string {
	all := map[string]string{}
	for _, f := range c.files {
		for name := range f.doc.Table(at()...) {
			all[name] = f.path
		}
	}
	return all
}

// Program is what the configuration has as the runtime of a handler, or "".
func (c *Config) Program(handler string) string { return c.setting(handler, "runtime_path") }

// RuntimeConfig is what the configuration has as that of a handler's runtime, or "".
func (c *Config) RuntimeConfig(handler string) string {
	return c.setting(handler, "runtime_config_path")
}

// Type is what the configuration has as that of a handler, or "", which is oci.
func (c *Config) Type(handler string) string { return c.setting(handler, "runtime_type") }

// Inherits says whether a handler has the program of the one for pods without a class.
func (c *Config) Inherits(handler string) bool {
	on, _ := c.last(handler, "inherit_default_runtime").(bool)
	return on
}

// MonitorPath is what watches over a handler's containers, or "" if that is looked for. What
// is set for all handlers comes before what one of them has.
func (c *Config) MonitorPath(handler string) string {
	return cmp.Or(c.runtime("conmon"), c.setting(handler, "monitor_path"))
}

// Default is the handler for pods without a class, or "" if no file names one.
func (c *Config) Default() string { return c.runtime("default_runtime") }

// runtime is a setting for all handlers.
func (c *Config) runtime(key string) string {
	value := ""
	for _, f := range c.files {
		if s, ok := f.doc.Get("crio", "runtime", key).(string); ok {
			value = s
		}
	}
	return value
}

// setting is that of a handler's last description.
func (c *Config) setting(handler, key string) string {
	s, _ := c.last(handler, key).(string)
	return s
}

// last is what a handler's last description has, and no earlier one: it counts whole.
func (c *Config) last(handler, key string) any {
	var value any
	for _, f := range c.files {
		if f.doc.Get(at(handler)...) != nil {
			value = f.doc.Get(at(handler, key)...)
		}
	}
	return value
}

// Pending are handlers that are served and would not be after CRI-O has read its
// files again.
func (c *Config) Pending(served []string) []string {
	named := c.Handlers()
	var gone []string
	for _, h := range served {
		if _, ok := named[h]; !ok && h != builtIn {
			gone = append(gone, h)
		}
	}
	return gone
}

// builtIn is the handler that CRI-O has by itself.
const builtIn = "crun"

// Unmonitored are those of the handlers that start no container any more once CRI-O
// has read its files by SIGHUP. The program that watches over containers, conmon, is
// looked for only when it starts, or is what the handler itself names.
func (c *Config) Unmonitored(served []string) []string {
	watched := map[string]bool{}
	for _, f := range c.files {
		for name := range f.doc.Table(at()...) {
			// The last description of a handler counts, and no part of an earlier one.
			kind, _ := f.doc.Get(at(name, "runtime_type")...).(string)
			monitor, _ := f.doc.Get(at(name, "monitor_path")...).(string)
			watched[name] = monitor != "" || !NeedsMonitor(kind)
		}
	}
	return slices.DeleteFunc(slices.Clone(served), func(h string) bool { return h == "" || watched[h] })
}

// NeedsMonitor says whether containers of a runtime type are watched over by conmon.
func NeedsMonitor(runtimeType string) bool { return runtimeType == "" || runtimeType == "oci" }

// The file of a type is named by it, between these.
const ownHead, ownTail = "99-fairlead-", ".conf"

// Own says whether a file in the folder of drop-ins has the name of one of ours.
func Own(name string) bool {
	return strings.HasPrefix(name, ownHead) && strings.HasSuffix(name, ownTail)
}

// own is the file of a type.
func (c *Config) own(kind string) string { return filepath.Join(c.DropIns, ownHead+kind+ownTail) }

// Startable says why CRI-O would not start again, whatever the file of a type says.
func (c *Config) Startable(kind string) error {
	others := slices.DeleteFunc(slices.Clone(c.Broken), func(s string) bool { return strings.HasPrefix(s, c.own(kind)+":") })
	if len(others) > 0 {
		return fault.New(payload.UnsupportedNode, "CRI-O would not start again with its configuration as it is: %s", others[0])
	}
	return nil
}

// Plan says which files to change for a type; without handlers, all of it is taken
// out. Owned are handlers that were written for it before.
func (c *Config) Plan(kind string, handlers []Handler) ([]Change, error) {
	switch {
	case c.DropIns == "" && len(handlers) == 0:
		return nil, nil
	case c.DropIns == "":
		return nil, fault.New(payload.UnsupportedNode, "CRI-O is started without a folder of drop-ins, in which handlers could be added; start it with --config-dir and a folder, or without that flag")
	}
	path := c.own(kind)
	old, err := os.ReadFile(inroot.Join(c.Root, path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read CRI-O's configuration: %w", err)
	}
	if err := c.needed(path, handlers); err != nil {
		return nil, err
	}
	if len(handlers) == 0 {
		if old == nil {
			return nil, nil
		}
		return []Change{{Path: path}}, nil
	}
	if err := c.Startable(kind); err != nil {
		return nil, err
	}
	for _, f := range c.files {
		for _, h := range handlers {
			if f.path != path && f.doc.Get(at(h.Name)...) != nil {
				return nil, fault.New(payload.Conflict, "%s:%d: handler %s is configured by somebody else; take it out there, or leave it out of the payload", f.path, f.doc.Line(at(h.Name)...), h.Name)
			}
		}
	}
	data := []byte(render(handlers))
	if _, err := tomledit.Parse(path, data); err != nil {
		return nil, fmt.Errorf("write CRI-O's configuration: %w", err)
	}
	if string(old) == string(data) {
		return nil, nil
	}
	return []Change{{Path: path, Data: data}}, nil
}

// Former takes away what was written for a type into folders that CRI-O was started with
// before.
func (c *Config) Former(kind string, written []string) []Change {
	own := c.own(kind)
	var all []Change
	for _, path := range written {
		_, err := os.Lstat(inroot.JoinParent(c.Root, path))
		if path != own && filepath.Base(path) == filepath.Base(own) && err == nil {
			all = append(all, Change{Path: path})
		}
	}
	return all
}

// needed refuses to take a handler out of a file of ours that is the one for pods without a
// class: without that CRI-O does not start.
func (c *Config) needed(path string, handlers []Handler) error {
	key := []string{"crio", "runtime", "default_runtime"}
	own := map[string]any{}
	var f *file
	name := ""
	for n := range c.files {
		if c.files[n].path == path {
			own = c.files[n].doc.Table(at()...)
		}
		if s, ok := c.files[n].doc.Get(key...).(string); ok {
			f, name = &c.files[n], s
		}
	}
	if _, ours := own[name]; !ours || slices.ContainsFunc(handlers, func(h Handler) bool { return h.Name == name }) {
		return nil
	}
	return fault.New(payload.Conflict, "%s:%d: default_runtime is %s, without which CRI-O would not start; name another handler there first", f.path, f.doc.Line(key...), name)
}

func render(handlers []Handler) string {
	var b strings.Builder
	b.WriteString("# Written by fairlead install; what is changed here is put back.\n")
	for _, h := range handlers {
		fmt.Fprintf(&b, "\n[%s]\n", tomledit.Path(at(h.Name)...))
		text(&b, "runtime_path", h.RuntimePath)
		text(&b, "runtime_type", h.RuntimeType)
		text(&b, "runtime_root", h.RuntimeRoot)
		text(&b, "runtime_config_path", h.RuntimeConfigPath)
		if len(h.AllowedAnnotations) > 0 {
			quoted := make([]string, len(h.AllowedAnnotations))
			for i, a := range h.AllowedAnnotations {
				quoted[i] = tomledit.Quote(a)
			}
			fmt.Fprintf(&b, "allowed_annotations = [%s]\n", strings.Join(quoted, ", "))
		}
		if h.PrivilegedWithoutHostDevices {
			b.WriteString("privileged_without_host_devices = true\n")
		}
	}
	return b.String()
}

func text(b *strings.Builder, key, value string) {
	if value != "" {
		fmt.Fprintf(b, "%s = %s\n", key, tomledit.Quote(value))
	}
}
