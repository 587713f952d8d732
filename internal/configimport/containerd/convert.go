package containerd

import (
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	config "fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/configimport/plan"
	"fairlead.run/internal/configimport/tree"
)

// Read makes a plan of a configuration file and what it imports, and says which
// files it has read.
func Read(path string) (*plan.Plan, []string, error) {
	l, err := load(path)
	if err != nil {
		return nil, nil, err
	}
	p, err := l.plan()
	return p, l.files, err
}

func (l *loaded) plan() (*plan.Plan, error) {
	c := converter{top: l.top, plugins: l.top.At("plugins")}
	if err := c.convert(); err != nil {
		return nil, err
	}
	for _, section := range l.repeated {
		c.Note(section, plan.Changed, "another file has something of this plugin, too: their keys are merged, as containerd 2 does; containerd 1 takes what is here alone")
	}
	return &c.Plan, nil
}

// converter goes through the files' content table by table. What it has not
// taken at the end has no counterpart.
type converter struct {
	plan.Plan
	tree.Taker

	top, plugins *tree.Node
}

func (c *converter) convert() error {
	c.daemon()
	c.network()
	c.containers()
	c.pulls()
	c.registries()
	c.streams()
	c.plugin()
	c.runtimes()
	c.Leftovers(c.top, rules, "no key of containerd of this name is known here")
	return c.Err()
}

// daemon has what concerns the process itself.
func (c *converter) daemon() {
	c.Int(c.top.At("version"))
	if at := c.top.At("debug", "level"); at != nil {
		if level := logLevel(c.String(at)); level != "" {
			c.Set("log.level", level, at)
		}
	}
	if at := c.top.At("debug", "format"); at != nil {
		if format := c.String(at); format != "" {
			c.Set("log.format", format, at)
		}
	}
	off := c.top.At("disabled_plugins")
	for _, id := range c.Strings(off) {
		switch {
		case id == cri || strings.HasPrefix(id, "io.containerd.cri.v1."):
			c.Note(off, plan.Changed, "%s is switched off, so that this containerd serves no pods; what it would serve them with is imported all the same", id)
		case id == nri:
			c.Set("nri.disable", true, off)
		}
	}
}

// logLevel is the level of ours that tells at least as much.
func logLevel(level string) string {
	switch level {
	case "trace":
		return "debug"
	case "fatal", "panic":
		return "error"
	case "warning":
		return "warn"
	}
	return level
}

func (c *converter) network() {
	cni := c.plugins.At(runtime, "cni")
	if at := cni.At("conf_dir"); at != nil {
		c.Set("network.conf_dir", filepath.Clean(c.String(at)), at)
	}
	if at := cni.At("bin_dirs"); at != nil {
		c.Set("network.bin_dirs", c.Strings(at), at)
	}
}

func (c *converter) containers() {
	rt := c.plugins.At(runtime)
	at := rt.At("max_container_log_line_size")
	if size, ok := c.Int(at); ok && size <= 0 {
		c.Note(at, plan.Dropped, "lines of logs have a limit here, 24576 bytes at most")
	} else if ok {
		c.Set("containers.max_log_line", size, at)
	}
	if at := rt.At("cdi_spec_dirs"); at != nil {
		c.Set("containers.cdi_spec_dirs", c.Strings(at), at)
	}
}

func (c *converter) pulls() {
	img := c.plugins.At(images)
	for _, at := range []*tree.Node{img.At("max_concurrent_downloads"), c.plugins.At(transfer, "max_concurrent_downloads")} {
		if n, ok := c.Int(at); ok && n != 3 { // which is containerd's default
			c.Set("images.max_concurrent_downloads", n, at)
			c.Note(at, plan.Changed, "containerd counts the downloads of each image, Fairlead those of all pulls together")
			break
		}
	}
	at := img.At("image_pull_progress_timeout")
	if d, ok := c.Duration(at); ok && d == 0 {
		c.Note(at, plan.Dropped, "a pull that gets no byte is given up here at some time; images.stall_timeout says when")
	} else if ok {
		c.Set("images.stall_timeout", duration(d), at)
	}
	c.pinned(img.At("pinned_images"))
}

// pinned takes the images that stay. That of the sandbox has no counterpart, as
// none is ever pulled.
func (c *converter) pinned(table *tree.Node) {
	var names []string
	for _, key := range c.Table(table).Names() {
		at := table.At(key)
		name := c.String(at)
		switch {
		case key != "sandbox" && name != "":
			names = append(names, name)
		case key == "sandbox" && !upstreamPause(name):
			c.Note(at, plan.Dropped, "pods have no pause container here, and no image is pulled for one")
		}
	}
	if len(names) > 0 {
		c.Set("images.pinned", names, table)
	}
}

// upstreamPause says whether an image is the usual one, of which nobody expects
// anything.
func upstreamPause(name string) bool {
	_, rest, _ := strings.Cut(name, "/")
	image, _, _ := strings.Cut(rest, "@")
	image, _, _ = strings.Cut(image, ":")
	return name == "" || image == "pause" || strings.HasSuffix(image, "/pause")
}

func (c *converter) streams() {
	srv := c.plugins.At(cri)
	host, port := c.String(srv.At("stream_server_address")), c.String(srv.At("stream_server_port"))
	if host != "" || port != "" {
		if host == "" {
			host = "127.0.0.1"
		}
		if port == "" {
			port = "0"
		}
		at := srv.At("stream_server_address")
		if at == nil {
			at = srv.At("stream_server_port")
		}
		c.Set("streaming.address", net.JoinHostPort(host, port), at)
	}
	if at := srv.At("stream_idle_timeout"); at != nil {
		if d, ok := c.Duration(at); ok {
			c.Set("streaming.idle_timeout", duration(d), at)
		}
	}
}

// plugin has the plugins beside those of pods and images.
func (c *converter) plugin() {
	p := c.plugins.At(nri)
	for _, key := range []struct{ theirs, ours string }{
		{"socket_path", "nri.socket"}, {"plugin_path", "nri.plugin_dir"}, {"plugin_config_path", "nri.plugin_config_dir"},
	} {
		if at := p.At(key.theirs); at != nil {
			if v := c.String(at); v != "" {
				c.Set(key.ours, v, at)
			}
		}
	}
	for _, key := range []struct{ theirs, ours string }{
		{"plugin_registration_timeout", "nri.registration_timeout"}, {"plugin_request_timeout", "nri.request_timeout"},
	} {
		at := p.At(key.theirs)
		if d, ok := c.Duration(at); ok {
			c.Set(key.ours, duration(d), at)
		}
	}
	if at := p.At("disable"); at != nil && !slices.Contains(c.Strings(c.top.At("disabled_plugins")), nri) {
		c.Set("nri.disable", c.Bool(at), at)
	}
	c.tracing(c.plugins.At(otlp))
}

func (c *converter) tracing(p *tree.Node) {
	at := p.At("endpoint")
	address := c.String(at)
	protocol := c.String(p.At("protocol"))
	insecure := c.Bool(p.At("insecure"))
	if address == "" {
		return
	}
	plain := strings.TrimPrefix(address, "http://")
	switch {
	case protocol != "grpc":
		c.Note(at, plan.Dropped, "spans go out by OTLP over gRPC alone; set tracing.endpoint to a collector of that")
	case !insecure && plain == address:
		c.Note(at, plan.Dropped, "spans go out unencrypted alone; set tracing.endpoint to a collector on this node")
	default:
		c.Set("tracing.endpoint", plain, at)
	}
}

// duration is a time span as Fairlead's configuration has it.
func duration(d time.Duration) string { return config.Duration{Duration: d}.String() }
