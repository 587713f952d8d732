package crio

import (
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"fairlead.run/internal/configimport/plan"
	"fairlead.run/internal/configimport/tree"
)

// builtin is the handler that CRI-O has without being told, since 1.31.
const builtin = "crun"

func (c *converter) runtimes() {
	rt := c.crio.At("runtime")
	at := rt.At("default_runtime")
	chosen := or(c.String(at), builtin)
	all := c.Table(rt.At("runtimes"))
	for _, name := range all.Names() {
		if h := c.Table(all.At(name)); h != nil {
			c.runtime(name, h, all.At(chosen))
		}
	}
	if all.At(builtin) == nil {
		c.AddHandler(builtin, nil)
	}
	if c.HasHandler(chosen) {
		c.Set("default_handler", chosen, at)
	} else {
		c.Note(at, plan.Dropped, "the handler %q is not imported, so that crun or runc is the default one until default_handler says otherwise", chosen)
	}
}

// runtime makes one handler. The table of the default one is where it gets its
// program from if it says so.
func (c *converter) runtime(name string, h, standard *tree.Node) {
	from := h
	if c.Bool(h.At("inherit_default_runtime")) && standard.IsTable() {
		from = standard
	}
	kind := c.String(from.At("runtime_type"))
	c.String(h.At("runtime_type"))
	switch kind {
	case "", "oci", "pod": // the latter is the same with another monitor
	case "vm":
		c.shim(name, h, from)
		return
	default:
		c.Note(h, plan.Dropped, "runtime_type %q is none that is known here", kind)
		h.Use()
		return
	}
	var fields []plan.Field
	if path, at := c.program(from); path != "" && path != name {
		fields = append(fields, plan.Field{Key: "path", Value: path, From: at})
	}
	c.program(h)
	if !c.AddHandler(name, h, append(fields, c.shared(h)...)...) {
		h.Use()
	}
}

// shared are the fields that have nothing to do with which runtime it is.
func (c *converter) shared(h *tree.Node) (fields []plan.Field) {
	at := h.At("allowed_annotations")
	if patterns := c.annotations(at); len(patterns) > 0 {
		fields = append(fields, plan.Field{Key: "pod_annotations", Value: patterns, From: at},
			plan.Field{Key: "container_annotations", Value: patterns, From: at})
	}
	if at := h.At("privileged_without_host_devices"); c.Bool(at) {
		fields = append(fields, plan.Field{Key: "privileged_without_host_devices", Value: true, From: at})
	}
	return fields
}

// shimName is how programs of shims are called, from which CRI-O makes no name of
// the runtime but containerd does.
var shimName = regexp.MustCompile(`^containerd-shim-([A-Za-z0-9_-]+)-(v[0-9]+)$`)

// shim makes a handler of one that CRI-O runs by a containerd shim.
func (c *converter) shim(name string, h, from *tree.Node) {
	path, at := c.program(from)
	c.program(h)
	m := shimName.FindStringSubmatch(filepath.Base(path))
	if m == nil {
		c.Note(h, plan.Dropped, "runtime_path, %q, has no name like containerd-shim-kata-v2, by which its runtime is known", path)
		h.Use()
		return
	}
	fields := []plan.Field{{Key: "path", Value: path, From: at}}
	if file := from.At("runtime_config_path"); c.String(file) != "" {
		fields = append(fields, plan.Field{Key: "config_path", Value: c.String(file), From: file})
	}
	if !c.AddShim(name, "io.containerd."+m[1]+"."+m[2], h, append(fields, c.shared(h)...)...) {
		h.Use()
	}
}

// program is the one for this platform; "" stands for the handler's name.
func (c *converter) program(h *tree.Node) (string, *tree.Node) {
	at := h.At("runtime_path")
	path := c.String(at)
	platforms := c.Table(h.At("platform_runtime_paths"))
	for _, name := range platforms.Names() {
		if own := c.String(platforms.At(name)); name == "linux/"+runtime.GOARCH && own != "" {
			path, at = own, platforms.At(name)
		}
	}
	return path, at
}

// forRuntimes are the annotations that CRI-O lets through to what runs the
// container. All others of its list it acts on itself.
var forRuntimes = []string{"bundle", "org.systemd.property.", "org.criu.config", "module.wasm.image/variant", "io.kubernetes.cri.container-type", "run.oci."}

// annotations are the patterns that a handler's list stands for: each is the
// beginning of a name.
func (c *converter) annotations(at *tree.Node) []string {
	var out, own []string
	for _, a := range c.Strings(at) {
		if strings.Contains(a, "*") || a == "" {
			c.Note(at, plan.Dropped, "%q is no annotation", a)
			continue
		}
		if crioOwn(a) {
			own = append(own, a)
			continue
		}
		if !slices.Contains(out, a+"*") {
			out = append(out, a+"*")
		}
	}
	if len(own) > 0 && !slices.Equal(own, []string{"io.containers.trace-syscall"}) {
		c.Note(at, plan.Dropped, "CRI-O acts on these itself, and Fairlead does not: %s", strings.Join(own, ", "))
	}
	return out
}

// crioOwn says whether an annotation asks CRI-O for something, and not the
// runtime.
func crioOwn(a string) bool {
	if slices.Contains(forRuntimes, a) {
		return false
	}
	for _, part := range []string{"crio.io", "cri-o", "io.containers.trace-syscall", "io.kubernetes.cri.", "org.opencontainers.image."} {
		if strings.Contains(a, part) {
			return true
		}
	}
	return false
}
