package containerd

import (
	"net/url"
	"path/filepath"
	"strings"

	"fairlead.run/internal/configimport/plan"
	"fairlead.run/internal/configimport/tree"
)

// registries takes over where mirrors are described, or writes such a
// description from the keys that containerd 1 had in this file.
func (c *converter) registries() {
	c.snapshotter(c.plugins.At(images, "snapshotter"))
	table := c.plugins.At(images, "registry")
	at := table.At("config_path")
	dirs := c.String(at)
	c.secrets(table)
	if dirs == "" {
		c.mirrors(table.At("mirrors"))
		c.configs(table.At("configs"))
		if len(c.Hosts()) > 0 {
			return
		}
		at = c.plugins.At(transfer, "config_path")
		dirs = c.String(at)
	}
	if dirs == "" {
		return
	}
	c.Set("images.certs_dirs", filepath.SplitList(dirs), at)
	if strings.Contains(dirs, ":") {
		c.Note(at, plan.Changed, "containerd looks for a registry in each of these folders; here the first that exists counts for all registries")
	}
	for _, key := range []string{"mirrors", "configs"} {
		if old := table.At(key); old != nil {
			old.Use()
			c.Note(old, plan.Dropped, "containerd itself does not take this beside config_path")
		}
	}
}

// secrets reports passwords without telling them.
func (c *converter) secrets(table *tree.Node) {
	report := func(at *tree.Node) {
		if at != nil && len(at.Table) > 0 {
			at.Use()
			c.Note(at, plan.Dropped, "no credentials are kept here: they come with each pull, from the kubelet's imagePullSecrets and credential providers")
		}
	}
	report(table.At("auths"))
	for _, config := range table.At("configs").Tables() {
		report(config.At("auth"))
	}
	if headers := table.At("headers"); headers != nil && len(headers.Table) > 0 {
		headers.Use()
		c.Note(headers, plan.Dropped, "headers belong into the hosts.toml of the registry that they are for")
	}
}

// mirrors writes what [mirrors."HOST"] endpoint = [...] says.
func (c *converter) mirrors(table *tree.Node) {
	for _, name := range c.Table(table).Names() {
		at := table.At(name, "endpoint")
		endpoints := c.Strings(at)
		if len(endpoints) == 0 {
			continue
		}
		folder := name
		if name == "*" {
			folder = plan.DefaultHost
		}
		host := c.Host(folder, at)
		for _, e := range endpoints {
			if host != nil {
				c.endpoint(host, name, e, at)
			}
		}
	}
}

// endpoint is one mirror. The registry itself comes last in any case.
func (c *converter) endpoint(host *plan.Host, name, text string, at *tree.Node) {
	if !strings.Contains(text, "://") {
		scheme := "https://"
		if local(text) {
			scheme = "http://"
		}
		text = scheme + text
	}
	server, ok := plan.ServerURL(text)
	if !ok {
		c.Note(at, plan.Dropped, "one of these is no address of a server: http:// or https://, a host and perhaps a path")
		return
	}
	if server == name {
		host.Server = text
	}
	u, _ := url.Parse(text)
	host.AddMirror(plan.Mirror{URL: text, OverridePath: strings.Trim(u.Path, "/") != "", TLS: c.tls(server)})
}

// local says whether containerd speaks plain HTTP to a host without a scheme.
func local(host string) bool {
	for _, prefix := range []string{"localhost", "127.0.0.1", "[::1]"} {
		if rest, ok := strings.CutPrefix(host, prefix); ok && (rest == "" || rest[0] == ':' || rest[0] == '/') {
			return true
		}
	}
	return false
}

// configs gives registries that are not mirrors their certificates.
func (c *converter) configs(table *tree.Node) {
	for _, name := range c.Table(table).Names() {
		tls := c.tls(name)
		if tls == (plan.TLS{}) {
			continue
		}
		folder := name
		if name == "registry-1.docker.io" { // which is asked for the images of this name
			folder = "docker.io"
		}
		if host := c.Host(folder, table.At(name)); host != nil {
			host.TLS = tls
		}
	}
}

// tls is what [configs."HOST".tls] says of a server.
func (c *converter) tls(server string) plan.TLS {
	table := c.plugins.At(images, "registry", "configs", server, "tls")
	return plan.TLS{
		SkipVerify: c.Bool(table.At("insecure_skip_verify")),
		CA:         c.String(table.At("ca_file")),
		ClientCert: c.String(table.At("cert_file")),
		Key:        c.String(table.At("key_file")),
	}
}
