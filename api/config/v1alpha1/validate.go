package v1alpha1

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	// ifname excludes what the kernel refuses and what would be a path.
	ifname = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,14}$`)
	// number is a version of a runtime.
	number = regexp.MustCompile(`^[0-9]{1,9}(\.[0-9]{1,9}){0,2}(-rc\.?[0-9]{1,9})?$`)
)

// maxSocket is the longest path of a unix socket, in bytes; the longest one
// below the state directory takes 40 of them.
const maxSocket, belowState = 107, 40

// Rlimits are the names that Containers.Rlimits may have.
func Rlimits() []string {
	return []string{
		"as", "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue",
		"nice", "nofile", "nproc", "rss", "rtprio", "rttime", "sigpending", "stack",
	}
}

// MetricGroups are the names that Stats.Metrics may have.
func MetricGroups() []string {
	return []string{"cpu", "disk", "hugetlb", "life", "memory", "network", "pressure", "process", "spec"}
}

// Validate says everything that is wrong with the values, each with its key
// and, where it came from a file, the file and the line.
func (c *Config) Validate() error {
	return errors.Join(
		c.checkTop(),
		c.checkHandlers(),
		c.checkNetwork(),
		c.checkImages(),
		c.checkServices(),
		c.checkContainers(),
		c.checkStats(),
	)
}

func (c *Config) checkTop() error {
	var bad []error
	if c.Version != Version {
		bad = append(bad, c.wrong("version", "this is %d, but only version %d of the format exists", c.Version, Version))
	}
	bad = append(bad, c.absolute("root", c.Root), c.absolute("state", c.State))
	if len(c.State) > maxSocket-belowState {
		bad = append(bad, c.wrong("state", "%q is longer than %d bytes, so that paths of sockets in it do not fit the kernel's limit", c.State, maxSocket-belowState))
	}
	if filepath.Clean(c.Root) == filepath.Clean(c.State) {
		bad = append(bad, c.wrong("state", "%q is the root directory too; one outlives a reboot and the other must not", c.State))
	}
	if c.Listen != "" {
		path, isURL := strings.CutPrefix(c.Listen, "unix://")
		switch {
		case !filepath.IsAbs(path) || (!isURL && strings.Contains(path, "://")):
			bad = append(bad, c.wrong("listen", "%q is not unix:// and an absolute path, as in unix:///run/fairlead/fairlead.sock", c.Listen))
		case len(path) > maxSocket:
			bad = append(bad, c.wrong("listen", "the path is longer than the %d bytes that a socket may have", maxSocket))
		}
	}
	if d := c.Cgroup.Driver; d != "" && d != "cgroupfs" && d != "systemd" {
		bad = append(bad, c.wrong("cgroup.driver", "%q is neither \"cgroupfs\" nor \"systemd\"", d))
	}
	return errors.Join(bad...)
}

func (c *Config) checkHandlers() error {
	var bad []error
	names := slices.Sorted(maps.Keys(c.Handlers))
	for _, name := range names {
		bad = append(bad, c.checkHandler("handlers."+name, name, c.Handlers[name]))
	}
	d := c.DefaultHandler
	if _, ok := c.Handlers[d]; d != "" && !ok && len(names) > 0 {
		bad = append(bad, c.wrong("default_handler", "there is no handler %q; there are %s", d, strings.Join(names, ", ")))
	}
	if d != "" && !dnsLabel.MatchString(d) {
		bad = append(bad, c.wrong("default_handler", "%q is no handler name: lower case letters, digits and -, up to 63", d))
	}
	return errors.Join(bad...)
}

// ours are the flags that Fairlead passes to OCI runtimes itself.
var ours = []string{"--root", "-root", "--log", "-log", "--log-format", "-log-format", "--systemd-cgroup", "-systemd-cgroup"}

func (c *Config) checkHandler(key, name string, h Handler) error {
	var bad []error
	if !dnsLabel.MatchString(name) {
		bad = append(bad, c.wrong(key, "a handler's name is a DNS label: lower case letters, digits and -, up to 63"))
	}
	switch h.Type {
	case "", "oci":
		bad = append(bad, c.checkNoShim(key, h))
	case "shim":
		bad = append(bad, c.checkShim(key, h))
	default:
		bad = append(bad, c.wrong(key+".type", "%q is no kind of handler; there are \"oci\" and \"shim\"", h.Type))
	}
	if strings.Contains(h.Path, "/") {
		bad = append(bad, c.absolute(key+".path", h.Path))
	}
	if h.Root != "" {
		bad = append(bad, c.absolute(key+".root", h.Root))
	}
	if h.MinVersion != "" && !number.MatchString(h.MinVersion) {
		bad = append(bad, c.wrong(key+".min_version", "%q is no version: up to three numbers with dots, and perhaps a release candidate, as in 1.2.8 or 1.4.0-rc.3", h.MinVersion))
	}
	for _, a := range h.Args {
		flag, _, _ := strings.Cut(a, "=")
		if slices.Contains(ours, flag) {
			bad = append(bad, c.wrong(key+".args", "%s is Fairlead's to set", flag))
		}
		if strings.ContainsRune(a, 0) || a == "" {
			bad = append(bad, c.wrong(key+".args", "%q is no argument", a))
		}
	}
	bad = append(bad, c.checkPatterns(key+".pod_annotations", h.PodAnnotations),
		c.checkPatterns(key+".container_annotations", h.ContainerAnnotations))
	return errors.Join(bad...)
}

func (c *Config) checkPatterns(key string, patterns []string) error {
	var bad []error
	for _, p := range patterns {
		if p == "" || strings.Contains(strings.TrimSuffix(p, "*"), "*") {
			bad = append(bad, c.wrong(key, "%q: write a name, or a prefix with one * at its end", p))
		}
	}
	return errors.Join(bad...)
}

func (c *Config) checkNetwork() error {
	n := c.Network
	bad := []error{c.absolute("network.conf_dir", n.ConfDir)}
	for _, dir := range n.BinDirs {
		bad = append(bad, c.absolute("network.bin_dirs", dir))
	}
	if !ifname.MatchString(n.Bridge) {
		bad = append(bad, c.wrong("network.bridge", "%q is no interface name: letters, digits, _ . and -, up to 15", n.Bridge))
	}
	if p, err := netip.ParsePrefix(n.IPv4); n.IPv4 != "" && (err != nil || !p.Addr().Is4() || p.Bits() < 8 || p.Bits() > 29) {
		bad = append(bad, c.wrong("network.ipv4", "%q is no IPv4 range from /8 to /29", n.IPv4))
	}
	if p, err := netip.ParsePrefix(n.IPv6); n.IPv6 != "" && (err != nil || !p.Addr().Is6() || p.Addr().Is4In6() || p.Bits() < 48 || p.Bits() > 120) {
		bad = append(bad, c.wrong("network.ipv6", "%q is no IPv6 range from /48 to /120", n.IPv6))
	}
	if n.IPv6 != "" && n.DisableIPv6 {
		bad = append(bad, c.wrong("network.ipv6", "a range is set, but network.disable_ipv6 is too; remove one"))
	}
	if n.MTU != 0 && (n.MTU < 1280 || n.MTU > 65535) {
		bad = append(bad, c.wrong("network.mtu", "%d is not between 1280 and 65535", n.MTU))
	}
	return errors.Join(bad...)
}

func (c *Config) checkImages() error {
	var bad []error
	for _, dir := range c.Images.CertsDirs {
		bad = append(bad, c.absolute("images.certs_dirs", dir))
	}
	if n := c.Images.MaxConcurrentDownloads; n < 1 || n > 64 {
		bad = append(bad, c.wrong("images.max_concurrent_downloads", "%d is not between 1 and 64", n))
	}
	for key, n := range map[string]int64{
		"images.max_layer_bytes":   c.Images.MaxLayerBytes,
		"images.max_layer_entries": c.Images.MaxLayerEntries,
	} {
		if n < 1 {
			bad = append(bad, c.wrong(key, "%d would refuse every image", n))
		}
	}
	bad = append(bad, c.checkPatterns("images.pinned", c.Images.Pinned))
	return errors.Join(bad...)
}

func (c *Config) checkServices() error {
	var bad []error
	for key, d := range map[string]Duration{
		"images.stall_timeout":     c.Images.StallTimeout,
		"streaming.idle_timeout":   c.Streaming.IdleTimeout,
		"streaming.token_ttl":      c.Streaming.TokenTTL,
		"nri.registration_timeout": c.NRI.RegistrationTimeout,
		"nri.request_timeout":      c.NRI.RequestTimeout,
	} {
		if d.Duration <= 0 {
			bad = append(bad, c.wrong(key, "%s is not longer than nothing", d))
		}
	}
	bad = append(bad, c.hostPort("streaming.address", c.Streaming.Address))
	if c.Tracing.Endpoint != "" {
		bad = append(bad, c.hostPort("tracing.endpoint", c.Tracing.Endpoint))
	}
	if c.Metrics.Address != "" {
		bad = append(bad, c.hostPort("metrics.address", c.Metrics.Address))
	}
	if p := c.Monitor.Path; strings.Contains(p, "/") {
		bad = append(bad, c.absolute("monitor.path", p))
	}
	bad = append(bad, c.absolute("nri.plugin_dir", c.NRI.PluginDir), c.absolute("nri.plugin_config_dir", c.NRI.PluginConfigDir))
	if s := c.NRI.Socket; s != "" {
		bad = append(bad, c.absolute("nri.socket", s))
		if len(s) > maxSocket {
			bad = append(bad, c.wrong("nri.socket", "the path is longer than the %d bytes that a socket may have", maxSocket))
		}
	}
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, c.Log.Level) {
		bad = append(bad, c.wrong("log.level", "%q is none of debug, info, warn and error", c.Log.Level))
	}
	if c.Log.Format != "text" && c.Log.Format != "json" {
		bad = append(bad, c.wrong("log.format", "%q is neither \"text\" nor \"json\"", c.Log.Format))
	}
	return errors.Join(bad...)
}

func (c *Config) checkContainers() error {
	var bad []error
	for _, name := range slices.Sorted(maps.Keys(c.Containers.Rlimits)) {
		key, limit := "containers.rlimits."+name, c.Containers.Rlimits[name]
		if !slices.Contains(Rlimits(), name) {
			hint := ""
			if near := Nearest(name, Rlimits()); near != "" {
				hint = ", did you mean " + near + "?"
			}
			bad = append(bad, c.wrong(key, "there is no such resource limit%s", hint))
		}
		if limit.Soft > limit.Hard {
			bad = append(bad, c.wrong(key, "soft, %s, is above hard, %s", limit.Soft, limit.Hard))
		}
	}
	for _, dir := range c.Containers.CDISpecDirs {
		bad = append(bad, c.absolute("containers.cdi_spec_dirs", dir))
	}
	if n := c.Containers.MaxLogLine; n < 256 || n > 24<<10 {
		bad = append(bad, c.wrong("containers.max_log_line", "%d is not between 256 and 24576", n))
	}
	return errors.Join(bad...)
}

func (c *Config) checkStats() error {
	var bad []error
	for _, name := range c.Stats.Metrics {
		if !slices.Contains(MetricGroups(), name) {
			bad = append(bad, c.wrong("stats.metrics", "there are no metrics %q; there are %s", name, strings.Join(MetricGroups(), ", ")))
		}
	}
	return errors.Join(bad...)
}

// hostPort demands an address to listen at.
func (c *Config) hostPort(key, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return c.wrong(key, "%q is not HOST:PORT", address)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return c.wrong(key, "%q is no port number", port)
	}
	return nil
}

// absolute demands an absolute path.
func (c *Config) absolute(key, path string) error {
	if filepath.IsAbs(path) && !strings.ContainsRune(path, 0) {
		return nil
	}
	return c.wrong(key, "%q is not an absolute path", path)
}
