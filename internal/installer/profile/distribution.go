package profile

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/inroot"
	"fairlead.run/internal/installer/containerd"
	"fairlead.run/internal/installer/crio"
	"fairlead.run/internal/installer/fault"
)

// Distribution is how a node's CRI runtime is set up.
type Distribution struct {
	// Name is such as containerd, crio or k3s.
	Name string
	// Runtime is containerd or crio.
	Runtime string
	// Socket is the CRI's.
	Socket string
	// Units are those by which systemd runs it; the first that there is counts.
	Units []string
	// Programs are where the daemon's program may be.
	Programs []string
	// KubeletInside says that the kubelet is a part of the distribution's own program, so
	// that there is no process of that name.
	KubeletInside bool
	// Containerd and CRIO are where its configuration is; one of them counts.
	Containerd containerd.Layout
	CRIO       crio.Layout
}

// seed is what a template of k3s and rke2 begins with: what they would write.
const seed = "{{ template \"base\" . }}\n"

var distributions = []Distribution{
	{
		Name: "containerd", Runtime: "containerd", Socket: "/run/containerd/containerd.sock", Units: []string{"containerd.service"},
		Programs:   []string{"/usr/bin/containerd", "/usr/local/bin/containerd", "/usr/sbin/containerd", "/opt/bin/containerd"},
		Containerd: containerd.Layout{Main: "/etc/containerd/config.toml"},
	},
	{
		Name: "crio", Runtime: "crio", Socket: "/run/crio/crio.sock", Units: []string{"crio.service"},
		CRIO: crio.Layout{Main: "/etc/crio/crio.conf", DropIns: "/etc/crio/crio.conf.d"},
	},
	{
		Name: "k3s", Runtime: "containerd", Socket: "/run/k3s/containerd/containerd.sock", Units: []string{"k3s.service", "k3s-agent.service"}, KubeletInside: true,
		Containerd: containerd.Layout{Main: "/var/lib/rancher/k3s/agent/etc/containerd/config.toml", Generated: true, Seed: seed},
	},
	{
		Name: "rke2", Runtime: "containerd", Socket: "/run/k3s/containerd/containerd.sock", Units: []string{"rke2-server.service", "rke2-agent.service"},
		Containerd: containerd.Layout{Main: "/var/lib/rancher/rke2/agent/etc/containerd/config.toml", Generated: true, Seed: seed},
	},
	{
		Name: "k0s", Runtime: "containerd", Socket: "/run/k0s/containerd.sock", Units: []string{"k0sworker.service", "k0scontroller.service"},
		Containerd: containerd.Layout{Main: "/etc/k0s/containerd.toml", Generated: true, DropIns: "/etc/k0s/containerd.d"},
	},
	{
		Name: "microk8s", Runtime: "containerd", Socket: "/var/snap/microk8s/common/run/containerd.sock", Units: []string{"snap.microk8s.daemon-containerd.service"}, KubeletInside: true,
		Containerd: containerd.Layout{Main: "/var/snap/microk8s/current/args/containerd.toml", Generated: true, Template: "/var/snap/microk8s/current/args/containerd-template.toml"},
	},
}

// Names are those of all distributions.
func Names() []string {
	var all []string
	for _, d := range distributions {
		all = append(all, d.Name)
	}
	return all
}

// Folders are those in which the runtimes of the known distributions have their
// configuration, and that of one more, which may have been said to be elsewhere. What is
// written into them by steps is in them as well.
func Folders(more Distribution) []string {
	all := map[string]bool{}
	for _, d := range append(slices.Clone(distributions), more) {
		for _, file := range []string{d.Containerd.Main, d.Containerd.Template, d.CRIO.Main} {
			all[filepath.Dir(file)] = true
		}
		for _, dir := range []string{d.Containerd.DropIns, d.CRIO.DropIns} {
			all[dir], all[filepath.Dir(dir)] = true, true
		}
	}
	delete(all, "")
	delete(all, filepath.Dir("")) // of files that are none
	return slices.Sorted(maps.Keys(all))
}

// same says whether the endpoint of a kubelet is a socket: its path may be written in
// another way, or lead there by a link.
func same(root, endpoint, socket string) bool {
	from, to := inroot.Join(root, plain(endpoint)), inroot.Join(root, plain(socket))
	if plain(endpoint) == plain(socket) || from == to { // neither need be there
		return true
	}
	a, err := os.Stat(from)
	if err != nil {
		return false
	}
	b, err := os.Stat(to)
	return err == nil && os.SameFile(a, b)
}

// plain is the path of an endpoint: /run may be /var/run as well.
func plain(endpoint string) string {
	path := endpoint
	if rest, ok := strings.CutPrefix(endpoint, "unix:"); ok {
		path = strings.TrimPrefix(rest, "//")
	}
	path = filepath.Clean(path)
	if below, ok := strings.CutPrefix(path, "/var/run/"); ok {
		return "/run/" + below
	}
	return path
}

func exists(root, path string) bool {
	_, err := os.Stat(inroot.Join(root, path))
	return err == nil
}

// at fills in what depends on the node.
func (d Distribution) at(root string) Distribution {
	d.Containerd.Root, d.CRIO.Root = root, root
	if d.Containerd.Seed == "" {
		return d
	}
	// k3s and rke2 make a file of version 3 from a template of its own. Newer ones
	// import a folder, which needs no template.
	dir := filepath.Dir(d.Containerd.Main)
	data, err := os.ReadFile(inroot.Join(root, d.Containerd.Main))
	if err == nil && strings.Contains(string(data), ".d/*.toml") {
		return d
	}
	d.Containerd.Template = filepath.Join(dir, "config.toml.tmpl")
	if err == nil && strings.Contains(string(data), "version = 3") {
		d.Containerd.Template = filepath.Join(dir, "config-v3.toml.tmpl")
	}
	return d
}

// Override takes the place of what was detected where it is not empty.
type Override struct {
	Socket, Config, Unit string
}

// With applies what the user has said.
func (d Distribution) With(o Override) (Distribution, error) {
	if o.Socket != "" {
		d.Socket = strings.TrimPrefix(o.Socket, "unix://")
	}
	if o.Unit != "" {
		d.Units = []string{o.Unit}
	}
	if !filepath.IsAbs(d.Socket) {
		return d, fault.New(payload.ConfigurationProblem, "socket %q is no absolute path", d.Socket)
	}
	if o.Config == "" {
		return d, nil
	}
	if !filepath.IsAbs(o.Config) {
		return d, fault.New(payload.ConfigurationProblem, "configuration %q is no absolute path", o.Config)
	}
	switch d.Runtime {
	case "containerd":
		d.Containerd.Main = o.Config
		if d.Containerd.Generated {
			return d, fault.New(payload.ConfigurationProblem, "the configuration of %s is made by itself, at a place of its own; leave --cri-config out", d.Name)
		}
	case "crio":
		d.CRIO.Main, d.CRIO.DropIns = o.Config, o.Config+".d"
	}
	return d, nil
}

// UnitDirs are where systemd finds units, the first of one name counts.
var UnitDirs = []string{"etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"}

// Unit is the one of the units below root by which the runtime is started. Where a node
// has several, as rke2 brings that of a server to each agent, it is the one in whose
// cgroup the runtime runs, which cgroup has as /proc/PID/cgroup, or else the only one that
// is enabled.
func (d Distribution) Unit(root, cgroup string) (string, error) {
	if len(d.Units) == 1 {
		return d.Units[0], nil
	}
	here := d.unitsHere(root)
	runs := slices.DeleteFunc(slices.Clone(here), func(u string) bool {
		return !slices.Contains(strings.FieldsFunc(cgroup, func(r rune) bool { return r == '/' || r == '\n' }), u)
	})
	enabled := slices.DeleteFunc(slices.Clone(here), func(u string) bool {
		_, err := os.Lstat(inroot.Join(root, "etc/systemd/system/multi-user.target.wants/"+u))
		return err != nil
	})
	for _, sure := range [][]string{here, runs, enabled} {
		if len(sure) == 1 {
			return sure[0], nil
		}
	}
	if len(here) == 0 {
		return "", fmt.Errorf("look how %s is started: none of the units %s is here; name one by --unit", d.Name, strings.Join(d.Units, ", "))
	}
	return "", fmt.Errorf("look how %s is started: the units %s are here, and it cannot be seen which one starts it; name it by --unit", d.Name, strings.Join(here, " and "))
}

// unitsHere are those of the units that are below root.
func (d Distribution) unitsHere(root string) []string {
	return slices.DeleteFunc(slices.Clone(d.Units), func(u string) bool {
		return !slices.ContainsFunc(UnitDirs, func(dir string) bool { return exists(root, filepath.Join(dir, u)) })
	})
}
