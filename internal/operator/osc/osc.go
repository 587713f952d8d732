// Package osc makes the entries of a Gardener OperatingSystemConfig that bring a
// runtime to machines: tables of containerd's plugins, and files out of an image. In
// a Gardener landscape that is how machines are changed, and nothing else may.
//
// It is pure, and works on objects as JSON has them: the API has much that is of no
// interest here, and must stay as it is.
package osc

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	payload "fairlead.run/api/payload/v1alpha1"
)

// Order is what a worker pool is to get.
type Order struct {
	Image    string
	Payload  *payload.RuntimePayload
	Settings payload.InstallSettings
	Arch     string
	// BinaryPath is the folder below which everything is put.
	BinaryPath string
}

// Entry is one entry of an OperatingSystemConfig.
type Entry = map[string]any

// runtimes is where containerd has its handlers.
var runtimes = []string{"io.containerd.grpc.v1.cri", "containerd", "runtimes"}

// base is the folder of the type.
func (o *Order) base() string { return path.Join(o.BinaryPath, o.Payload.Type) }

// dir is the folder of the files. The same version from another image, or with other
// files, has another one, as pods run from the first. Nobody compares files with the
// manifest on these machines, so that the image counts as well.
func (o *Order) dir() string {
	sum := sha256.New()
	_, digest, _ := strings.Cut(o.Image, "@")
	_, _ = fmt.Fprintf(sum, "%q\n", digest)
	for _, f := range o.Payload.Files {
		_, _ = fmt.Fprintf(sum, "%q %q %q %q %q\n", f.Path, f.Source, f.Arch, f.Mode, f.SHA256)
	}
	return path.Join(o.base(), payload.Folder(o.Payload.Version, hex.EncodeToString(sum.Sum(nil))))
}

// configs are those of the payload, as far as the settings have no others.
func (o *Order) configs() []payload.Config {
	var out []payload.Config
	for _, c := range o.Payload.Configs {
		for _, set := range o.Settings.Configs {
			if set.Path == c.Path {
				c = set
			}
		}
		out = append(out, c)
	}
	return out
}

// configDir is the folder of the configs, which their content names.
func (o *Order) configDir() string {
	return path.Join(o.base(), payload.ConfigFolder(o.dir(), o.configs()))
}

func (o *Order) fill(text string) string {
	return strings.NewReplacer(payload.PayloadDir, o.dir(), payload.ConfigDir, o.configDir()).Replace(text)
}

// Files are the entries of spec.files.
func (o *Order) Files() ([]any, error) {
	var out []any
	for _, f := range o.Payload.Files {
		if f.Arch != "" && f.Arch != o.Arch {
			continue
		}
		mode, err := strconv.ParseInt(f.Mode, 8, 32)
		if err != nil {
			return nil, fmt.Errorf("read the mode of %s: %w", f.Path, err)
		}
		source := f.Source
		if source == "" {
			source = f.Path
		}
		out = append(out, Entry{
			"path": path.Join(o.dir(), f.Path), "permissions": mode,
			"content": Entry{"imageRef": Entry{"image": o.Image, "filePathInImage": path.Join("/", source)}},
		})
	}
	for _, c := range o.configs() {
		out = append(out, Entry{
			"path": path.Join(o.configDir(), c.Path), "permissions": int64(0o644),
			"content": Entry{"inline": Entry{"encoding": "", "data": o.fill(c.Content)}},
		})
	}
	return out, nil
}

// Plugins are the entries of spec.criConfig.containerd.plugins: one for each handler.
func (o *Order) Plugins() ([]any, error) {
	var out []any
	for i := range o.Payload.Handlers {
		h := &o.Payload.Handlers[i]
		if h.Containerd == nil || len(o.Settings.Handlers) > 0 && !slices.Contains(o.Settings.Handlers, h.Name) {
			continue
		}
		entry := Entry{"op": "add", "path": list(append(slices.Clone(runtimes), h.Name)), "values": o.values(h.Containerd)}
		if !within(entry["values"], o.base()) {
			return nil, fmt.Errorf("write the table of handler %s: it names no file of the payload, so that nobody could tell later whose it is; give it a runtimePath or options with one", h.Name)
		}
		// Through JSON, as what is stored has no types of ours.
		text, err := json.Marshal(entry)
		if err != nil {
			return nil, fmt.Errorf("write the table of handler %s: %w", h.Name, err)
		}
		var plain Entry
		if err := json.Unmarshal(text, &plain); err != nil {
			return nil, fmt.Errorf("write the table of handler %s: %w", h.Name, err)
		}
		out = append(out, plain)
	}
	return out, nil
}

func list(words []string) []any {
	out := []any{} // empty and not null in JSON
	for _, w := range words {
		out = append(out, w)
	}
	return out
}

// values are the keys of a handler, by containerd's names.
func (o *Order) values(h *payload.ContainerdHandler) Entry {
	c := *h
	if c.RuntimePath != "" {
		c.RuntimePath = path.Join(o.dir(), c.RuntimePath)
	}
	c = c.ByPath()
	// Machines lay these over what an earlier release has left there, so that what may be
	// unsafe, or let through too much, is always said.
	v := Entry{
		"runtime_type": c.RuntimeType, "privileged_without_host_devices": c.PrivilegedWithoutHostDevices,
		"pod_annotations": list(c.PodAnnotations), "container_annotations": list(c.ContainerAnnotations),
	}
	if c.RuntimePath != "" {
		v["runtime_path"] = c.RuntimePath
	}
	if c.Snapshotter != "" {
		v["snapshotter"] = c.Snapshotter
	}
	if c.Sandboxer != "" {
		v["sandboxer"] = c.Sandboxer
	}
	options := Entry{}
	if s := c.Options; s != nil {
		for key, value := range map[string]string{"TypeUrl": s.TypeURL, "ConfigPath": o.fill(s.ConfigPath), "BinaryName": o.fill(s.BinaryName)} {
			if value != "" {
				options[key] = value
			}
		}
		if s.SystemdCgroup != nil {
			options["SystemdCgroup"] = *s.SystemdCgroup
		}
	}
	if len(options) > 0 {
		v["options"] = options
	}
	return v
}

// Entries are those of a runtime. Whatever is below Base, or names something there,
// is the runtime's, and so is a table of one of the Handlers.
type Entries struct {
	Files, Plugins []any
	Base           string
	Handlers       []string
}

// Put has the entries of a runtime in an object's spec, in the place of those of
// another release. The files of the release that was there just before stay until the
// next one comes: machines remove what has no entry, and pods run from them.
// All entries of others stay, and everything stays in its order: several types have
// entries in one object, and none may move those of another. The tables of a runtime that
// goes leave entries by which machines take theirs away. That of a handler which a release
// has dropped leaves none, as its pods go on, and their containers start again by it.
func Put(object Entry, with Entries) error {
	spec, ok := object["spec"].(map[string]any)
	if !ok {
		return fmt.Errorf("read an OperatingSystemConfig: it has no spec")
	}
	cri, ok := spec["criConfig"].(map[string]any)
	if !ok {
		return fmt.Errorf("read an OperatingSystemConfig: it has no spec.criConfig, so that its machines have no containerd of Gardener's")
	}
	containerd, ok := cri["containerd"].(map[string]any)
	if !ok {
		containerd = Entry{}
	}
	former := those(containerd, "plugins", with.table)
	replace(containerd, "plugins", with.Plugins, with.table)
	if len(containerd) > 0 {
		cri["containerd"] = containerd
	}
	if len(with.Plugins) > 0 {
		note(object, nil, with.Plugins)
	} else {
		note(object, former, nil)
	}
	Sweep(object)
	var stay func(Entry) bool
	switch {
	case len(with.Files) == 0:
		stay = func(Entry) bool { return false }
	case fmt.Sprint(former) == fmt.Sprint(those(containerd, "plugins", with.table)): // what was before these stays what it is
		stay = func(Entry) bool { return true }
	default:
		stay = with.named(spec, former)
	}
	replace(spec, "files", with.Files, func(e Entry) bool { return with.file(e) && (with.wants(e) || !stay(e)) })
	return nil
}

// file says whether an entry of spec.files is the runtime's.
func (w Entries) file(e Entry) bool {
	at, _ := e["path"].(string)
	return strings.HasPrefix(at, w.Base+"/")
}

// wants says whether a file is to be there now.
func (w Entries) wants(e Entry) bool {
	return slices.ContainsFunc(w.Files, func(f any) bool { return fmt.Sprint(f.(Entry)["path"]) == fmt.Sprint(e["path"]) })
}

// table says whether an entry of containerd's plugins is the runtime's.
func (w Entries) table(e Entry) bool {
	name := handler(e)
	return name != "" && !goes(e) && (slices.Contains(w.Handlers, name) || within(e["values"], w.Base))
}

// named tells the files in folders that some tables name, or the configs there.
func (w Entries) named(spec Entry, tables []any) func(Entry) bool {
	text := fmt.Sprint(tables)
	folder := func(e Entry) string {
		name, _, _ := strings.Cut(strings.TrimPrefix(fmt.Sprint(e["path"]), w.Base+"/"), "/")
		return path.Join(w.Base, name) + "/"
	}
	all, _ := spec["files"].([]any)
	for _, one := range all {
		if e, ok := one.(map[string]any); ok && w.file(e) && strings.Contains(text, folder(e)) {
			text += fmt.Sprint(e["content"])
		}
	}
	return func(e Entry) bool { return strings.Contains(text, folder(e)) }
}

// within says whether some text in a value is a path below a folder.
func within(value any, folder string) bool {
	switch v := value.(type) {
	case string:
		return strings.HasPrefix(v, folder+"/")
	case map[string]any:
		for _, one := range v {
			if within(one, folder) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, func(one any) bool { return within(one, folder) })
	}
	return false
}

// replace has what should be in a list, in the place of what is ours there. An entry
// is the same one if it is about the same path; what is new comes last. A list that
// had nothing and gets nothing is not made.
func replace(in Entry, key string, with []any, ours func(Entry) bool) {
	had, _ := in[key].([]any)
	out, put := []any{}, map[int]bool{}
	for _, one := range had {
		e, ok := one.(map[string]any)
		if !ok || !ours(e) {
			out = append(out, one)
			continue
		}
		at := slices.IndexFunc(with, func(w any) bool { return fmt.Sprint(w.(Entry)["path"]) == fmt.Sprint(e["path"]) })
		if at >= 0 && !put[at] {
			out = append(out, with[at])
			put[at] = true
		}
	}
	for i := range with {
		if !put[i] {
			out = append(out, with[i])
		}
	}
	if len(had)+len(with) > 0 {
		in[key] = out
	}
}

// Base is the folder of a type below a binary path.
func Base(binaryPath, typ string) string { return path.Join(binaryPath, typ) }
