package v1alpha1

import (
	"errors"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// RuncShim is the runtime_type of the shim whose options are known.
const RuncShim = "io.containerd.runc.v2"

// RuncOptions are the options of the runc shim that may be set, each with a value
// of its type. SystemdCgroup follows from cgroup.driver.
func RuncOptions() map[string]any {
	return map[string]any{"BinaryName": "", "Root": "", "ShimCgroup": "", "NoPivotRoot": false, "NoNewKeyring": false}
}

// runtimeType is a name from which that of a program can be made.
var runtimeType = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.([A-Za-z0-9_-]+)\.(v[0-9]+)$`)

// ShimProgram is the name of the program that containerd runs for a runtime_type,
// or "" if that is no name of one.
func ShimProgram(runtime string) string {
	m := runtimeType.FindStringSubmatch(runtime)
	if m == nil {
		return ""
	}
	return "containerd-shim-" + m[2] + "-" + m[3]
}

// checkNoShim refuses what only shims have.
func (c *Config) checkNoShim(key string, h Handler) error {
	var bad []error
	for name, set := range map[string]bool{
		"runtime_type": h.RuntimeType != "", "config_path": h.ConfigPath != "",
		"options": h.Options != nil, "snapshotter": h.Snapshotter != "",
	} {
		if set {
			bad = append(bad, c.wrong(key+"."+name, "is for shims; set type = \"shim\", or leave it out"))
		}
	}
	return errors.Join(bad...)
}

func (c *Config) checkShim(key string, h Handler) error {
	var bad []error
	if h.RuntimeType == "" || ShimProgram(h.RuntimeType) == "" {
		bad = append(bad, c.wrong(key+".runtime_type", "%q is no name of a shim, as in %q", h.RuntimeType, RuncShim))
	}
	if len(h.Args) > 0 {
		bad = append(bad, c.wrong(key+".args", "a shim takes no arguments; what it is to know goes into options or config_path"))
	}
	if h.Root != "" {
		bad = append(bad, c.wrong(key+".root", "a shim has no such directory; runc's is options.Root"))
	}
	if h.Snapshotter != "" && h.Snapshotter != "overlayfs" {
		bad = append(bad, c.wrong(key+".snapshotter", "%q is none; there is only \"overlayfs\"", h.Snapshotter))
	}
	if h.ConfigPath != "" {
		bad = append(bad, c.absolute(key+".config_path", h.ConfigPath))
	}
	if h.RuntimeType != RuncShim {
		return errors.Join(append(bad, c.checkTypeURL(key, h))...)
	}
	if h.ConfigPath != "" {
		bad = append(bad, c.wrong(key+".config_path", "runc's shim reads no file; set options"))
	}
	return errors.Join(append(bad, c.checkRuncOptions(key+".options.", h.Options))...)
}

// checkTypeURL refuses what would else be passed on as an option of no effect.
func (c *Config) checkTypeURL(key string, h Handler) error {
	for _, name := range []string{"TypeUrl", "ConfigPath"} {
		v, ok := h.Options[name]
		if _, text := v.(string); ok && (!text || name == "ConfigPath") {
			if name == "ConfigPath" {
				return c.wrong(key+".options."+name, "is the key config_path of the handler here; set that")
			}
			return c.wrong(key+".options."+name, "%v is no string", v)
		}
	}
	return nil
}

func (c *Config) checkRuncOptions(prefix string, options map[string]any) error {
	var bad []error
	known := RuncOptions()
	names := slices.Sorted(maps.Keys(known))
	for _, name := range slices.Sorted(maps.Keys(options)) {
		like, ok := known[name]
		switch {
		case name == "SystemdCgroup":
			bad = append(bad, c.wrong(prefix+name, "follows from cgroup.driver; leave it out"))
		case !ok:
			bad = append(bad, c.wrong(prefix+name, "runc's shim has no such option here; there are %s", strings.Join(names, ", ")))
		case reflect.TypeOf(options[name]) != reflect.TypeOf(like):
			bad = append(bad, c.wrong(prefix+name, "%v is no %T", options[name], like))
		case name == "Root" && !filepath.IsAbs(options[name].(string)):
			bad = append(bad, c.absolute(prefix+name, options[name].(string)))
		}
	}
	return errors.Join(bad...)
}
