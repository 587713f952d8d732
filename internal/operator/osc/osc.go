// Package osc makes the entries of a Gardener OperatingSystemConfig that bring a
// runtime to machines: tables of containerd's plugins, and files out of an image. In
// a Gardener landscape that is how machines are changed, and nothing else may.
//
// It is pure, and works on objects as JSON has them: the API has much that is of no
// interest here, and must stay as it is.
package osc

import (
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

func (o *Order) fill(text string) string {
	return strings.NewReplacer(payload.PayloadDir, path.Join(o.base(), o.Payload.Version), payload.ConfigDir, path.Join(o.base(), payload.ReservedPrefix+o.Payload.Version)).Replace(text)
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
			"path": path.Join(o.base(), o.Payload.Version, f.Path), "permissions": mode,
			"content": Entry{"imageRef": Entry{"image": o.Image, "filePathInImage": path.Join("/", source)}},
		})
	}
	for _, c := range o.Payload.Configs {
		for _, set := range o.Settings.Configs {
			if set.Path == c.Path {
				c = set
			}
		}
		out = append(out, Entry{
			"path": path.Join(o.fill(payload.ConfigDir), c.Path), "permissions": int64(0o644),
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
	var out []any
	for _, w := range words {
		out = append(out, w)
	}
	return out
}

// values are the keys of a handler, by containerd's names.
func (o *Order) values(c *payload.ContainerdHandler) Entry {
	v := Entry{"runtime_type": c.RuntimeType}
	if c.RuntimePath != "" {
		v["runtime_path"] = path.Join(o.base(), o.Payload.Version, c.RuntimePath)
	}
	if c.Snapshotter != "" {
		v["snapshotter"] = c.Snapshotter
	}
	if c.Sandboxer != "" {
		v["sandboxer"] = c.Sandboxer
	}
	if len(c.PodAnnotations) > 0 {
		v["pod_annotations"] = c.PodAnnotations
	}
	if len(c.ContainerAnnotations) > 0 {
		v["container_annotations"] = c.ContainerAnnotations
	}
	if c.PrivilegedWithoutHostDevices {
		v["privileged_without_host_devices"] = true
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

// Entries are those of a runtime. Whatever is below Base or is a table of one of the
// Handlers is the runtime's.
type Entries struct {
	Files, Plugins []any
	Base           string
	Handlers       []string
}

// Put has the entries of a runtime in an object's spec, in the place of those of
// another release. All entries of others stay, in their order.
func Put(object Entry, with Entries) error {
	spec, ok := object["spec"].(map[string]any)
	if !ok {
		return fmt.Errorf("read an OperatingSystemConfig: it has no spec")
	}
	spec["files"] = replaced(spec["files"], with.Files, func(e Entry) bool {
		at, _ := e["path"].(string)
		return strings.HasPrefix(at, with.Base+"/")
	})
	cri, ok := spec["criConfig"].(map[string]any)
	if !ok {
		return fmt.Errorf("read an OperatingSystemConfig: it has no spec.criConfig, so that its machines have no containerd of Gardener's")
	}
	containerd, ok := cri["containerd"].(map[string]any)
	if !ok {
		containerd = Entry{}
		cri["containerd"] = containerd
	}
	containerd["plugins"] = replaced(containerd["plugins"], with.Plugins, func(e Entry) bool {
		words, _ := e["path"].([]any)
		return len(words) == len(runtimes)+1 && slices.Equal(words[:len(runtimes)], list(runtimes)) && slices.Contains(with.Handlers, fmt.Sprint(words[len(runtimes)]))
	})
	return nil
}

// replaced is a list without what is ours, and with what should be.
func replaced(had any, with []any, ours func(Entry) bool) []any {
	all, _ := had.([]any)
	out := []any{}
	for _, one := range all {
		if e, ok := one.(map[string]any); !ok || !ours(e) {
			out = append(out, one)
		}
	}
	return append(out, with...)
}

// Base is the folder of a type below a binary path.
func Base(binaryPath, typ string) string { return path.Join(binaryPath, typ) }
