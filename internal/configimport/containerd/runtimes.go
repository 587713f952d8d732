package containerd

import (
	"fmt"
	"strings"

	"fairlead.run/internal/configimport/plan"
	"fairlead.run/internal/configimport/tree"
)

// builtin is the handler that containerd has without being told.
const builtin = "runc"

// runtimes makes a handler of each runtime, and finds the default one and the
// driver of cgroups.
func (c *converter) runtimes() {
	table := c.plugins.At(runtime, "containerd")
	at := table.At("default_runtime_name")
	chosen := c.String(at)
	if chosen == "" {
		chosen = builtin
	}
	all := c.Table(table.At("runtimes"))
	for _, name := range all.Names() {
		if rt := c.Table(all.At(name)); rt != nil {
			c.runtime(name, rt)
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
	c.cgroups(all, chosen)
}

// runtime makes one handler.
func (c *converter) runtime(name string, rt *tree.Node) {
	kind := c.String(rt.At("runtime_type"))
	if kind == "" && name == builtin {
		kind = "io.containerd.runc.v2"
	}
	fields := c.shared(rt)
	switch kind {
	case "io.containerd.runc.v1", "io.containerd.runc.v2":
		fields = append(c.runc(name, rt), fields...)
	case "io.containerd.runtime.v1.linux":
		fields = append(c.linux(name, rt), fields...)
	case "io.containerd.runsc.v1":
		fields = append(c.runsc(name, rt), fields...)
	case "":
		c.Note(rt, plan.Dropped, "there is no runtime_type, without which containerd starts no pod on it")
		rt.Use()
		return
	default:
		if !c.AddShim(name, kind, rt, append(c.shim(rt), fields...)...) {
			rt.Use()
		}
		return
	}
	if !c.AddHandler(name, rt, fields...) {
		rt.Use()
	}
}

// shared are the fields that have nothing to do with which runtime it is.
func (c *converter) shared(rt *tree.Node) []plan.Field {
	var out []plan.Field
	for _, key := range []string{"pod_annotations", "container_annotations"} {
		at := rt.At(key)
		if patterns := c.patterns(at); len(patterns) > 0 {
			out = append(out, plan.Field{Key: key, Value: patterns, From: at})
		}
	}
	if at := rt.At("privileged_without_host_devices"); c.Bool(at) {
		out = append(out, plan.Field{Key: "privileged_without_host_devices", Value: true, From: at})
	}
	if at := rt.At("snapshotter"); at != nil {
		c.snapshotter(at)
	}
	return out
}

// patterns are those that Fairlead has as well: names, and beginnings.
func (c *converter) patterns(at *tree.Node) []string {
	var out []string
	for _, p := range c.Strings(at) {
		if p == "" || strings.ContainsAny(strings.TrimSuffix(p, "*"), `*?[\`) {
			c.Note(at, plan.Dropped, "%q is neither a name nor a beginning with one * behind, so that annotations like it are kept from the runtime", p)
			continue
		}
		out = append(out, p)
	}
	return out
}

func (c *converter) snapshotter(at *tree.Node) {
	if s := c.String(at); s != "" && s != "overlayfs" {
		c.Note(at, plan.Dropped, "layers are mounted by overlayfs here, and %q is not there", s)
	}
}

// runc is a handler of the shim of runc: whatever has its command line.
func (c *converter) runc(name string, rt *tree.Node) []plan.Field {
	c.shimProgram(rt)
	at := rt.At("options", "BinaryName")
	return program(name, "runc", c.String(at), at)
}

// linux is the same before containerd had shims of version 2.
func (c *converter) linux(name string, rt *tree.Node) []plan.Field {
	at := rt.At("runtime_engine")
	engine := c.String(at)
	if options := rt.At("options", "BinaryName"); engine == "" && options != nil {
		at, engine = options, c.String(options)
	}
	return program(name, "runc", engine, at)
}

// program is the field for a program, if the handler's name does not say it.
func program(handler, usual, path string, at *tree.Node) []plan.Field {
	if path == "" {
		path = usual
	}
	if path == handler {
		return nil
	}
	return []plan.Field{{Key: "path", Value: path, From: at}}
}

// shim are the fields of a handler that runs the shim of its runtime_type.
func (c *converter) shim(rt *tree.Node) (fields []plan.Field) {
	if at := rt.At("runtime_path"); c.String(at) != "" {
		fields = append(fields, plan.Field{Key: "path", Value: c.String(at), From: at})
	}
	options := c.Table(rt.At("options"))
	if at := options.At("ConfigPath"); c.String(at) != "" {
		fields = append(fields, plan.Field{Key: "config_path", Value: c.String(at), From: at})
	}
	told := map[string]any{}
	for _, name := range options.Names() {
		if name != "ConfigPath" {
			told[name] = options.At(name).Plain()
			options.At(name).Use()
		}
	}
	if len(told) > 0 {
		fields = append(fields, plan.Field{Key: "options", Value: told, From: options})
	}
	return fields
}

// shimProgram drops the path of a shim of a handler that needs none here.
func (c *converter) shimProgram(rt *tree.Node) {
	if at := rt.At("runtime_path"); c.String(at) != "" {
		c.Note(at, plan.Dropped, "Fairlead drives the runtime itself, without this shim")
	}
}

// runsc is a handler of gVisor's shim: runsc, with the flags that the shim's own
// file has.
func (c *converter) runsc(name string, rt *tree.Node) []plan.Field {
	c.shimProgram(rt)
	options := rt.At("options")
	at := options.At("ConfigPath")
	path := c.String(at)
	c.String(options.At("TypeUrl"))
	if path == "" {
		return program(name, "runsc", c.String(options.At("BinaryName")), options.At("BinaryName"))
	}
	file, err := tree.Read(path)
	if err != nil {
		c.Note(at, plan.Dropped, "%v; none of its settings are taken over", err)
		return program(name, "runsc", "", at)
	}
	fields := program(name, "runsc", c.String(file.At("binary_name")), file.At("binary_name"))
	var args []string
	for _, flag := range c.Table(file.At("runsc_config")).Names() {
		if arg := c.flag(flag, file.At("runsc_config", flag)); arg != "" {
			args = append(args, arg)
		}
	}
	if len(args) > 0 {
		fields = append(fields, plan.Field{Key: "args", Value: args, From: file.At("runsc_config")})
	}
	c.Leftovers(file, runscRules, "no key of gVisor's shim of this name is known here")
	return fields
}

// flag is one flag of runsc, or "" for those that Fairlead sets itself.
func (c *converter) flag(name string, at *tree.Node) string {
	at.Use()
	switch name {
	case "root", "log", "log-format", "systemd-cgroup", "overlay2", "oci-seccomp", "gofer-network-namespace":
		c.Note(at, plan.Dropped, "Fairlead sets this flag itself")
		return ""
	case "network":
		if at.Value == "sandbox" {
			return "" // which is what it is anyway
		}
	}
	if at.IsTable() || at.List != nil {
		c.Refuse(at, "this is no value of a flag")
		return ""
	}
	return fmt.Sprintf("--%s=%v", name, at.Value)
}

// cgroups sets the one driver that there is here from the runtimes, of which
// each has its own there: that of the default one counts.
func (c *converter) cgroups(all *tree.Node, chosen string) {
	systemd, from := false, (*tree.Node)(nil)
	known := chosen == builtin && all.At(builtin) == nil
	for _, name := range append([]string{chosen}, all.Names()...) {
		rt := all.At(name)
		at := rt.At("options", "SystemdCgroup")
		isRunc := rt != nil && (name == builtin || rt.At("runtime_type").Text() == "io.containerd.runc.v2")
		if !isRunc && at == nil {
			continue
		}
		is := c.Bool(at)
		if !known {
			systemd, from, known = is, at, true
			continue
		}
		if is != systemd && at != nil {
			c.Note(at, plan.Changed, "there is one driver of cgroups for all handlers, cgroup.driver, which follows the default handler")
		}
	}
	if known {
		c.Set("cgroup.driver", map[bool]string{true: "systemd", false: "cgroupfs"}[systemd], from)
	}
}
