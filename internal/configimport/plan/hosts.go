package plan

import (
	"maps"
	"net/url"
	"regexp"
	"slices"

	"fairlead.run/internal/configimport/tree"
)

// Host is what one registry's hosts.toml says.
type Host struct {
	Name    string // host or host:port; "_default" is all that have no own
	Server  string // address of the registry itself; empty is what follows from the name
	TLS     TLS    // of the server
	Mirrors []Mirror
}

// Mirror is a server that is asked before the registry itself.
type Mirror struct {
	URL          string // scheme, host, and perhaps a path
	OverridePath bool   // the path is the whole one, without /v2 added
	PullOnly     bool   // it is not asked which image a tag means
	TLS          TLS
}

// TLS is how a server is known.
type TLS struct {
	SkipVerify      bool
	CA              string
	ClientCert, Key string
}

// DefaultHost stands for all registries that have no folder of their own.
const DefaultHost = "_default"

// registry is a host and perhaps a port. It becomes the name of a folder.
var registry = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:]{2,45}\])(:[0-9]{1,5})?$`)

// Host is the registry of a name, made if it is not there. It is nil, and the
// key is dropped, if that is no name of one.
func (p *Plan) Host(name string, from *tree.Node) *Host {
	if name != DefaultHost && !registry.MatchString(name) {
		p.Note(from, Dropped, "%q is no name of a registry: a host, and perhaps a port", name)
		return nil
	}
	if p.hosts == nil {
		p.hosts = map[string]*Host{}
	}
	if p.hosts[name] == nil {
		p.hosts[name] = &Host{Name: name}
	}
	return p.hosts[name]
}

// AddMirror adds a server to be asked before the registry, unless it is there.
func (h *Host) AddMirror(m Mirror) {
	if !slices.ContainsFunc(h.Mirrors, func(have Mirror) bool { return have.URL == m.URL }) {
		h.Mirrors = append(h.Mirrors, m)
	}
}

// Hosts are the registries that were made so far, by name.
func (p *Plan) Hosts() []*Host { return p.sortedHosts() }

func (p *Plan) sortedHosts() []*Host {
	var out []*Host
	for _, name := range slices.Sorted(maps.Keys(p.hosts)) {
		out = append(out, p.hosts[name])
	}
	return out
}

// ServerURL says whether a text is the address of a server, and which host it
// names.
func ServerURL(text string) (host string, ok bool) {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", false
	}
	return u.Host, registry.MatchString(u.Host)
}

func (h *Host) write(w *writer) {
	w.comment("Written by fairlead config import.")
	if h.Server != "" {
		w.value("server", h.Server)
	}
	h.TLS.write(w)
	for _, m := range h.Mirrors {
		w.table("host", m.URL)
		if m.PullOnly {
			w.value("capabilities", []string{"pull"})
		} else {
			w.value("capabilities", []string{"pull", "resolve"})
		}
		if m.OverridePath {
			w.value("override_path", true)
		}
		m.TLS.write(w)
	}
}

func (t TLS) write(w *writer) {
	if t.SkipVerify {
		w.value("skip_verify", true)
	}
	if t.CA != "" {
		w.value("ca", t.CA)
	}
	switch {
	case t.ClientCert != "" && t.Key != "":
		w.value("client", [][]string{{t.ClientCert, t.Key}})
	case t.ClientCert != "":
		w.value("client", t.ClientCert)
	}
}
