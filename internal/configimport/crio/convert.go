package crio

import (
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"

	config "fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/configimport/plan"
	"fairlead.run/internal/configimport/tree"
)

// Sources are the files of a node that uses CRI-O. Of the defaults any may be
// missing; what is named has to exist.
type Sources struct {
	Paths      []string // crio.conf and folders; empty stands for DefaultPaths
	Registries []string // registries.conf and folders; empty stands for DefaultRegistries if Paths is empty too
}

// Read makes a plan of the files, and says which those were.
func Read(s Sources) (*plan.Plan, []string, error) {
	paths, registries := s.Paths, s.Registries
	if len(paths) == 0 {
		paths = DefaultPaths()
	}
	if len(s.Paths)+len(registries) == 0 {
		registries = DefaultRegistries()
	}
	list, err := files(paths, len(s.Paths) == 0)
	if err != nil {
		return nil, nil, err
	}
	more, err := files(registries, len(s.Registries) == 0)
	if err != nil {
		return nil, nil, err
	}
	top, err := load(list, mergeMain)
	if err != nil {
		return nil, nil, err
	}
	mirrors, err := load(more, mergeRegistries)
	if err != nil {
		return nil, nil, err
	}
	p, err := convert(top, mirrors)
	return p, append(list, more...), err
}

// convert makes a plan of the main configuration and that of registries.
func convert(top, mirrors *tree.Node) (*plan.Plan, error) {
	c := converter{crio: top.At("crio")}
	c.convert(top, mirrors)
	if err := c.Err(); err != nil {
		return nil, err
	}
	return &c.Plan, nil
}

// converter goes through the files' content table by table. What it has not
// taken at the end has no counterpart.
type converter struct {
	plan.Plan
	tree.Taker

	crio *tree.Node
}

func (c *converter) convert(top, mirrors *tree.Node) {
	c.daemon()
	c.network()
	c.containers()
	c.images()
	c.streams()
	c.plugins()
	c.runtimes()
	c.mirrors(mirrors)
	c.Leftovers(top, rules, "no key of CRI-O of this name is known here")
	c.Leftovers(mirrors, registryRules, "no key of registries.conf of this name is known here")
}

func (c *converter) daemon() {
	rt := c.crio.At("runtime")
	at := rt.At("cgroup_manager")
	c.Set("cgroup.driver", or(c.String(at), "systemd"), at) // which is CRI-O's default
	if at := rt.At("log_level"); at != nil {
		switch level := c.String(at); level {
		case "":
		case "trace":
			c.Set("log.level", "debug", at)
		case "fatal", "panic":
			c.Set("log.level", "error", at)
		case "warning":
			c.Set("log.level", "warn", at)
		default:
			c.Set("log.level", level, at)
		}
	}
	t := c.crio.At("tracing")
	at = t.At("tracing_endpoint")
	address := c.String(at)
	if c.Bool(t.At("enable_tracing")) {
		if address == "" {
			address = "127.0.0.1:4317"
		}
		c.Set("tracing.endpoint", address, at)
	}
}

func (c *converter) network() {
	n := c.crio.At("network")
	if at := n.At("network_dir"); c.String(at) != "" {
		c.Set("network.conf_dir", filepath.Clean(c.String(at)), at)
	}
	at := n.At("plugin_dirs")
	dirs := c.Strings(at)
	if old := n.At("plugin_dir"); c.String(old) != "" {
		dirs = append([]string{c.String(old)}, dirs...)
		at = old
	}
	if len(dirs) > 0 {
		for i := range dirs {
			dirs[i] = filepath.Clean(dirs[i])
		}
		c.Set("network.bin_dirs", dirs, at)
	}
}

func (c *converter) containers() {
	rt := c.crio.At("runtime")
	if at := rt.At("cdi_spec_dirs"); at != nil {
		c.Set("containers.cdi_spec_dirs", c.Strings(at), at)
	}
	c.capabilities(rt.At("default_capabilities"))
	at := rt.At("default_ulimits")
	for _, text := range c.Strings(at) {
		name, limit, ok := ulimit(text)
		if !ok {
			c.Note(at, plan.Dropped, "%q is no limit: a name, =, and one or two numbers with : between", text)
			continue
		}
		c.Set("containers.rlimits."+name, limit, at)
	}
}

// usual are the capabilities that containers have here unless their pod says
// otherwise, by CRI-O's names.
var usual = []string{
	"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW",
	"SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}

// capabilities compares what CRI-O gives a container with what it has here. Its
// own default is less, so that there is something to say without the key, too.
func (c *converter) capabilities(at *tree.Node) {
	theirs := []string{"CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "SETGID", "SETUID", "SETPCAP", "NET_BIND_SERVICE", "KILL"}
	if at != nil {
		theirs = c.Strings(at)
	} else {
		at = &tree.Node{Key: "crio.runtime.default_capabilities"}
	}
	for i := range theirs {
		theirs[i] = strings.TrimPrefix(strings.ToUpper(theirs[i]), "CAP_")
	}
	without := func(list, other []string) string {
		rest := slices.DeleteFunc(slices.Clone(list), func(name string) bool { return slices.Contains(other, name) })
		slices.Sort(rest)
		return strings.Join(rest, ", ")
	}
	if more := without(usual, theirs); more != "" {
		c.Note(at, plan.Changed, "containers have these capabilities here and do not under CRI-O, unless their pod drops them: %s", more)
	}
	if fewer := without(theirs, usual); fewer != "" {
		c.Note(at, plan.Dropped, "containers have these capabilities under CRI-O and not here, unless their pod adds them: %s", fewer)
	}
}

// ulimit takes "nofile=1024:4096" apart. A number of -1 is no limit.
func ulimit(text string) (name string, limit config.Rlimit, ok bool) {
	name, value, found := strings.Cut(text, "=")
	soft, hard, two := strings.Cut(value, ":")
	if !two {
		hard = soft
	}
	err := errors.Join(number(soft, &limit.Soft), number(hard, &limit.Hard))
	return strings.ToLower(name), limit, found && name != "" && err == nil
}

func number(text string, limit *config.Limit) error {
	if text == "-1" {
		text = config.Unlimited.String()
	}
	return limit.UnmarshalText([]byte(text))
}

func (c *converter) images() {
	img := c.crio.At("image")
	if at := img.At("pull_progress_timeout"); at != nil {
		if d, ok := c.Duration(at); ok && d > 0 {
			c.Set("images.stall_timeout", config.Duration{Duration: d}.String(), at)
		}
	}
	at := img.At("pinned_images")
	var pinned []string
	for _, name := range c.Strings(at) {
		if name == "" || strings.Contains(strings.TrimSuffix(name, "*"), "*") {
			c.Note(at, plan.Dropped, "%q is neither a name nor a beginning with one * behind", name)
			continue
		}
		pinned = append(pinned, name)
	}
	if len(pinned) > 0 {
		c.Set("images.pinned", pinned, at)
	}
	at = img.At("insecure_registries")
	for _, name := range c.Strings(at) {
		c.insecure(name, at)
	}
}

// insecure is a registry whose certificate is not looked at, and which may
// speak plain HTTP.
func (c *converter) insecure(name string, at *tree.Node) {
	if host := c.Host(name, at); host != nil {
		host.TLS.SkipVerify = true
		c.insecureServer(host, name)
	}
}

// insecureServer adds the two ways to a server, the better one first.
func (c *converter) insecureServer(host *plan.Host, server string) {
	host.AddMirror(plan.Mirror{URL: "https://" + server, TLS: plan.TLS{SkipVerify: true}})
	host.AddMirror(plan.Mirror{URL: "http://" + server})
}

func (c *converter) streams() {
	api := c.crio.At("api")
	host, port := c.String(api.At("stream_address")), c.String(api.At("stream_port"))
	if host != "" || port != "" {
		at := api.At("stream_address")
		if at == nil {
			at = api.At("stream_port")
		}
		c.Set("streaming.address", net.JoinHostPort(or(host, "127.0.0.1"), or(port, "0")), at)
	}
	at := api.At("stream_idle_timeout")
	if d, ok := c.Duration(at); ok && d > 0 {
		c.Set("streaming.idle_timeout", config.Duration{Duration: d}.String(), at)
	}
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func (c *converter) plugins() {
	n := c.crio.At("nri")
	for _, key := range []struct{ theirs, ours string }{
		{"nri_listen", "nri.socket"}, {"nri_plugin_dir", "nri.plugin_dir"}, {"nri_plugin_config_dir", "nri.plugin_config_dir"},
	} {
		if at := n.At(key.theirs); c.String(at) != "" {
			c.Set(key.ours, c.String(at), at)
		}
	}
	for _, key := range []struct{ theirs, ours string }{
		{"nri_plugin_registration_timeout", "nri.registration_timeout"}, {"nri_plugin_request_timeout", "nri.request_timeout"},
	} {
		at := n.At(key.theirs)
		if d, ok := c.Duration(at); ok {
			c.Set(key.ours, config.Duration{Duration: d}.String(), at)
		}
	}
	if at := n.At("enable_nri"); at != nil {
		c.Set("nri.disable", !c.Bool(at), at)
	}
}
