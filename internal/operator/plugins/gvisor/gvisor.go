// Package gvisor is the type gvisor: a kernel in user space between a pod and that
// of its node.
package gvisor

import (
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/pelletier/go-toml/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/plugin"
)

// configFile is the config of a payload that the shim reads flags of runsc from.
const configFile = "runsc.toml"

// New is the plugin.
func New() plugin.Plugin { return gvisor{} }

type gvisor struct{}

// Describe says what gVisor is.
func (gvisor) Describe() plugin.Description {
	return plugin.Description{
		Type: "gvisor", ClassNames: map[string]string{"runsc": "gvisor"}, Isolation: v1alpha1.IsolationSandbox,
		// The sentry of an idle pod takes some 30 MB.
		Overhead: map[string]corev1.ResourceList{"": {corev1.ResourceMemory: resource.MustParse("32Mi")}},
	}
}

// config is a providerConfig. It is that of Gardener's extension for gVisor, and an
// overhead.
type config struct {
	APIVersion  string            `json:"apiVersion"`
	Kind        string            `json:"kind"`
	ConfigFlags map[string]string `json:"configFlags"`
	Overhead    map[string]string `json:"overhead"`
}

var kind = plugin.Kind{Name: "GVisorConfiguration", Versions: []string{"gvisor.runtime.extensions.config.gardener.cloud/v1alpha1", "gvisor.fairlead.run/v1alpha1"}}

// flags are those of runsc that change how pods run and not where runsc itself keeps
// things, which the shim decides.
var flags = map[string]plugin.Flag{
	"debug":                     {},
	"strace":                    {},
	"strace-syscalls":           {Kind: plugin.FlagText},
	"strace-log-size":           {Kind: plugin.FlagNumber},
	"log-packets":               {},
	"platform":                  {Kind: plugin.FlagText, Only: []string{"systrap", "kvm", "ptrace"}},
	"network":                   {Kind: plugin.FlagText, Only: []string{"sandbox", "none", "host"}},
	"net-raw":                   {},
	"gso":                       {},
	"software-gso":              {},
	"tx-checksum-offload":       {},
	"rx-checksum-offload":       {},
	"num-network-channels":      {Kind: plugin.FlagNumber},
	"overlay2":                  {Kind: plugin.FlagText},
	"file-access":               {Kind: plugin.FlagText, Only: []string{"exclusive", "shared"}},
	"file-access-mounts":        {Kind: plugin.FlagText, Only: []string{"exclusive", "shared"}},
	"directfs":                  {},
	"dcache":                    {Kind: plugin.FlagNumber},
	"host-uds":                  {Kind: plugin.FlagText, Only: []string{"none", "open", "create", "all"}},
	"host-fifo":                 {Kind: plugin.FlagText, Only: []string{"none", "open"}},
	"oci-seccomp":               {},
	"watchdog-action":           {Kind: plugin.FlagText, Only: []string{"log", "panic"}},
	"cpu-num-from-quota":        {},
	"enable-core-tags":          {},
	"systemd-cgroup":            {},
	"nvproxy":                   {},
	"allow-packet-socket-write": {},
}

// Configure turns configFlags into the shim's configuration.
func (gvisor) Configure(raw []byte, p *payload.RuntimePayload, at *field.Path) (plugin.Settings, field.ErrorList) {
	var c config
	faults := plugin.Decode(raw, &c, []string{"apiVersion", "kind", "configFlags", "overhead"}, at)
	faults = append(faults, kind.Check(c.APIVersion, c.Kind, at)...)
	faults = append(faults, plugin.CheckFlags(c.ConfigFlags, flags, at.Child("configFlags"))...)
	overhead, more := plugin.CheckOverhead(c.Overhead, at.Child("overhead"))
	faults = append(faults, more...)
	faults = append(faults, ends(p, at)...)
	settings := plugin.Settings{Overhead: overhead}
	if len(faults) > 0 || len(c.ConfigFlags) == 0 || p == nil {
		return settings, faults
	}
	content, err := withFlags(p, c.ConfigFlags)
	if err != nil {
		return settings, field.ErrorList{field.Invalid(at.Child("configFlags"), "", err.Error())}
	}
	settings.Install.Configs = []payload.Config{{Path: configFile, Content: content}}
	return settings, nil
}

// ends refuses a payload on whose handlers no start of a container would ever end: runsc gives
// a container the output of "runsc start", which CRI-O reads to its end.
func ends(p *payload.RuntimePayload, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	for i := range p.Handlers {
		if c := p.Handlers[i].CRIO; c != nil && c.RuntimeType == "oci" && path.Base(c.RuntimePath) == "runsc" {
			return field.ErrorList{field.Invalid(at, p.Handlers[i].Name, fmt.Sprintf("below CRI-O no start of a container by runsc returns; use a payload whose handler %s is of the type vm, with gVisor's shim, which that of version %s is not", p.Handlers[i].Name, p.Version))}
		}
	}
	return nil
}

// withFlags is the payload's own configuration of the shim, with flags set in it.
func withFlags(p *payload.RuntimePayload, set map[string]string) (string, error) {
	at := slices.IndexFunc(p.Configs, func(c payload.Config) bool { return c.Path == configFile })
	if at < 0 {
		return "", fmt.Errorf("the payload of version %s has no %s, so that its flags cannot be set", p.Version, configFile)
	}
	all := map[string]any{}
	if err := toml.Unmarshal([]byte(p.Configs[at].Content), &all); err != nil {
		return "", fmt.Errorf("read %s of the payload of version %s: %w", configFile, p.Version, err)
	}
	table, ok := all["runsc_config"].(map[string]any)
	if !ok {
		table = map[string]any{}
		all["runsc_config"] = table
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		table[name] = set[name] // the shim wants text, whatever the flag is
	}
	text, err := toml.Marshal(all) // sorts by name, so that the same flags are the same text
	return string(text), err
}

// Suits every machine: gVisor needs no virtualisation.
func (gvisor) Suits(plugin.Machine, *field.Path) (*field.Error, string) { return nil, "" }
