package crio

import (
	"strings"

	"fairlead.run/internal/configimport/plan"
	"fairlead.run/internal/configimport/tree"
)

// mergeRegistries takes the registries of all files: one that is described
// again replaces the one before.
func mergeRegistries(top, file *tree.Node) {
	have, more := top.At("registry"), file.At("registry")
	if have == nil || more == nil || more.List == nil {
		top.Merge(file)
		return
	}
	for _, r := range more.List {
		at := len(have.List)
		for i, old := range have.List {
			if prefix(old) == prefix(r) {
				at = i
			}
		}
		have.List = append(have.List[:at:at], append([]*tree.Node{r}, have.List[min(at+1, len(have.List)):]...)...)
	}
	delete(file.Table, "registry")
	top.Merge(file)
}

// prefix is what the names of a registry's images begin with.
func prefix(r *tree.Node) string { return or(r.At("prefix").Text(), r.At("location").Text()) }

// mirrors makes a hosts.toml of each registry.
func (c *converter) mirrors(top *tree.Node) {
	at := top.At("registry")
	if at != nil && at.List == nil {
		c.Refuse(at, "this is no list of tables")
		return
	}
	if at == nil {
		return
	}
	for _, r := range at.List {
		c.registry(r)
	}
}

func (c *converter) registry(r *tree.Node) {
	name, location := or(c.String(r.At("prefix")), c.String(r.At("location"))), c.String(r.At("location"))
	insecure, blocked := c.Bool(r.At("insecure")), c.Bool(r.At("blocked"))
	if strings.Contains(name, "/") || strings.HasPrefix(name, "*.") {
		c.Note(r, plan.Dropped, "%q is a part of a registry or several of them; mirrors are there for one whole registry", name)
		r.Use()
		return
	}
	if blocked {
		c.Note(r, plan.Dropped, "no registry can be refused; images of %q are pulled as any others", name)
	}
	var mirrors []*tree.Node
	if at := r.At("mirror"); at != nil {
		mirrors = at.List
	}
	if len(mirrors) == 0 && !insecure && (location == "" || location == name) {
		return // nothing but its name
	}
	host := c.Host(name, r)
	if host == nil {
		r.Use()
		return
	}
	onlyDigests := c.Bool(r.At("mirror-by-digest-only"))
	for _, m := range mirrors {
		c.mirror(host, m, onlyDigests)
	}
	switch {
	case location != "" && location != name:
		c.mirror(host, &tree.Node{File: r.File, Line: r.Line, Key: r.Key, Table: map[string]*tree.Node{
			"location": {File: r.File, Line: r.Line, Key: r.Key, Value: location}, "insecure": {Value: insecure},
		}}, false)
		c.Note(r, plan.Changed, "when %s does not answer, %s itself is asked", location, name)
	case insecure:
		c.insecureServer(host, name)
		host.TLS.SkipVerify = true
	}
}

// mirror is one server that is asked before the registry.
func (c *converter) mirror(host *plan.Host, m *tree.Node, onlyDigests bool) {
	at := m.At("location")
	location := strings.Trim(c.String(at), "/")
	server, path, nested := strings.Cut(location, "/")
	what := c.String(m.At("pull-from-mirror"))
	if _, ok := plan.ServerURL("https://" + server); !ok {
		c.Note(m, plan.Dropped, "%q is no address of a server: a host and perhaps a path", location)
		return
	}
	if what == "tag-only" {
		c.Note(m, plan.Dropped, "a mirror cannot be kept for tags alone")
		return
	}
	if nested {
		server += "/v2/" + path
	}
	schemes := []string{"https"}
	insecure := c.Bool(m.At("insecure"))
	if insecure {
		schemes = append(schemes, "http")
	}
	for _, scheme := range schemes {
		host.AddMirror(plan.Mirror{
			URL: scheme + "://" + server, OverridePath: nested, PullOnly: onlyDigests || what == "digest-only",
			TLS: plan.TLS{SkipVerify: insecure && scheme == "https"},
		})
	}
}
