// Package doctor looks at a node and says what is wrong with its container
// runtimes, each with what helps. It changes nothing.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/installer/containerd"
	"fairlead.run/internal/installer/cri"
	"fairlead.run/internal/installer/crio"
	"fairlead.run/internal/installer/kubelet"
	"fairlead.run/internal/installer/profile"
)

// Level is how bad a finding is.
type Level string

// The levels.
const (
	OK      Level = "ok"
	Warning Level = "warning"
	Error   Level = "error"
)

// Finding is one thing that was looked at.
type Finding struct {
	// Level is how bad it is.
	Level Level `json:"level"`
	// Code is for programs, Object what it is about.
	Code   string `json:"code"`
	Object string `json:"object"`
	// Text says how it is, and Fix what helps if it is not well.
	Text string `json:"text"`
	Fix  string `json:"fix,omitempty"`
}

// Node is where to look.
type Node struct {
	// Root is where the node's root directory is seen.
	Root string
	// Choice and Override say what cannot be found out.
	Choice   profile.Choice
	Override profile.Override
	// proc is /proc, but in tests.
	proc string
}

// exam collects findings.
type exam struct {
	Node
	all  []Finding
	dist profile.Distribution
	seen cri.Seen
	// absent says that a daemon answers at the runtime's socket and has no CRI.
	absent bool
	// blind is why it was not seen how the runtime was started, or nil, and told says that
	// it is started with a file that has to be there.
	blind error
	told  bool
	// search is the runtime's PATH, nil where it is not seen, and beside the folder of its
	// program, or "".
	search []string
	beside string
}

// Examine looks at all of the node.
func Examine(ctx context.Context, n Node) []Finding {
	n.proc = cmp.Or(n.proc, "/proc")
	e := &exam{Node: n}
	k := e.kubelet()
	e.kernel()
	err := e.detect()
	if k == nil {
		e.noKubelet()
	}
	if err != nil {
		e.add(Finding{Error, "runtime", "node", err.Error(), "name the runtime by --distribution, --cri-socket and --cri-config"})
		e.leftovers()
		return e.all
	}
	e.unused(k)
	e.socket(ctx)
	if e.dist.Runtime == "crio" {
		e.crio()
	} else {
		e.containerd()
	}
	e.leftovers()
	return e.all
}

// detect finds the distribution, also that of a runtime that is down.
func (e *exam) detect() error {
	var err error
	if e.dist, err = profile.Detect(e.Root, e.Choice); err == nil {
		e.dist, err = e.dist.With(e.Override)
	}
	return err
}

func (e *exam) add(f Finding) { e.all = append(e.all, f) }

func (e *exam) path(p string) string { return filepath.Join("/", e.Root, p) }

// kubelet is that of the node, as far as it is known; nil if none was found.
func (e *exam) kubelet() *kubelet.Kubelet {
	k, err := kubelet.Find(e.proc, e.Root)
	switch {
	case errors.Is(err, errdefs.ErrNotFound):
		return nil
	case err != nil:
		e.add(Finding{Error, "kubelet", "kubelet", err.Error(), "correct the kubelet's configuration"})
		return &k
	}
	if e.Choice.Endpoint == "" {
		e.Choice.Endpoint = k.Endpoint
	}
	for _, p := range k.Problems() {
		what, fix, _ := strings.Cut(p, "; ")
		e.add(Finding{Warning, "kubelet", "kubelet", what, fix})
	}
	e.add(Finding{OK, "kubelet", "kubelet", fmt.Sprintf("it uses %s, and rotates logs at %s, %d files", cmp.Or(k.Endpoint, "a socket that is not known"), k.LogSize, k.LogFiles), ""})
	return &k
}

// unused tells of a kubelet that uses another runtime than the one that is looked at.
func (e *exam) unused(k *kubelet.Kubelet) {
	if text := e.dist.Unused(e.path("/"), k); text != "" {
		what, fix, _ := strings.Cut(text, "; ")
		e.add(Finding{Warning, "kubelet", e.dist.Socket, what, fix})
	}
}

func (e *exam) noKubelet() {
	if e.dist.KubeletInside {
		e.add(Finding{OK, "kubelet", "kubelet", e.dist.Name + " has it in its own process, so that its flags were not looked at", ""})
		return
	}
	e.add(Finding{Warning, "kubelet", "kubelet", "no kubelet is seen, so that its flags were not looked at", "start it, or look from the host's PID namespace"})
}

func (e *exam) kernel() {
	if _, err := os.Stat(e.path("/dev/kvm")); err != nil {
		e.add(Finding{Warning, "kvm", "/dev/kvm", "it is not there, so that runtimes with virtual machines, such as Kata, do not work", "use a machine with (nested) virtualisation, or leave such runtimes out"})
	} else {
		e.add(Finding{OK, "kvm", "/dev/kvm", "it is there", ""})
	}
	switch {
	case exists(e.path("/sys/fs/cgroup/cgroup.controllers")):
		e.add(Finding{OK, "cgroups", "/sys/fs/cgroup", "cgroup v2", ""})
	case exists(e.path("/sys/fs/cgroup/memory")):
		e.add(Finding{Warning, "cgroups", "/sys/fs/cgroup", "cgroup v1, which Kubernetes and runtimes are leaving behind", "boot with systemd.unified_cgroup_hierarchy=1"})
	default:
		e.add(Finding{Error, "cgroups", "/sys/fs/cgroup", "no cgroups are mounted", "mount cgroup2 there"})
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (e *exam) socket(ctx context.Context) {
	var err error
	e.seen, err = cri.Client{Socket: e.path(e.dist.Socket)}.Probe(ctx)
	e.absent = cri.Absent(err)
	switch {
	case err != nil:
		e.add(Finding{Error, "socket", e.dist.Socket, err.Error(), "start the runtime, and look at its log: journalctl -u " + strings.Join(e.dist.Units, " -u ")})
	case e.seen.NotReady != "":
		e.add(Finding{Error, "socket", e.dist.Socket, e.seen.NotReady, "look at the runtime's log: journalctl -u " + strings.Join(e.dist.Units, " -u ")})
	default:
		e.add(Finding{OK, "socket", e.dist.Socket, fmt.Sprintf("%s %s serves %s", e.seen.Name, e.seen.Version, strings.Join(e.seen.Handlers, ", ")), ""})
	}
}

func (e *exam) containerd() {
	err := e.started()
	main := e.dist.Containerd.Main
	if err != nil {
		e.add(Finding{Error, "config", main, err.Error(), "start containerd with an absolute path, or name the file by --cri-config"})
		return
	}
	c, err := containerd.Load(e.dist.Containerd)
	if err != nil {
		e.add(Finding{Error, "config", main, err.Error(), "correct the file; containerd will not start again with it"})
		return
	}
	for _, p := range c.Dangling {
		e.add(Finding{Error, "import", p, "the configuration imports it and it is not there; containerd will not start again", "take the import out, or put the file back"})
	}
	if f := c.Disabled(); f != "" {
		e.add(Finding{Error, "config", f, "the CRI is in disabled_plugins", "take it out there, and restart containerd"})
	}
	if f := c.GoneBack(); f != "" && e.absent {
		e.add(Finding{Error, "config", f, "containerd answers without the CRI, and containerd 1.x takes this file for its whole table of the CRI", "if this node has gone back from containerd 2.x, take the import of it out of " + main + " and restart containerd"})
	}
	for _, text := range c.Ignored() {
		e.add(Finding{Warning, "config", main, text + ", so that it may be read by nobody", "write the tables by the names of the file's version"})
	}
	e.read(c.Main, len(c.Files()), fmt.Sprintf("version %d, %d files", c.Version, len(c.Files())))
	e.ctr()
	d := containerd.Daemon{Loaded: e.seen.Loaded}
	if d.Major, d.Minor, err = e.seen.Release(); err == nil && d.Loaded != nil {
		e.pending(c.Pending(d))
	}
	configured := c.Handlers(d.Major)
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		p := configured[name]
		e.handler(name, fmt.Sprintf("%s:%d", p.File, p.Line))
		e.shim(name, p)
		e.options(name, p)
	}
	e.unconfigured(configured, d.Major >= 2 || c.Version > 2 || len(configured) == 0)
}

// ctr looks for containerd's own client, which helps where the CRI does not answer.
// Distributions of Kubernetes have it in their own program.
func (e *exam) ctr() {
	system, err := profile.DetectOS(e.Root, "")
	if err != nil || e.dist.Name != "containerd" || len(system.Ctr) == 0 {
		return
	}
	if path := system.FindCtr(e.path("/")); path != "" {
		e.add(Finding{OK, "ctr", path, "it is there", ""})
		return
	}
	e.add(Finding{Warning, "ctr", "ctr", "containerd's client is not on this node, which has to be asked by it when the CRI does not answer", "it comes with " + system.CtrFrom})
}

// pending tells of handlers that the next restart takes away.
func (e *exam) pending(names []string) {
	for _, name := range names {
		e.add(Finding{Warning, "handler", name, "it is served and no longer configured, and will be gone after the next restart", "put it back into the configuration, or restart the runtime when no pod needs it"})
	}
}

// handler compares what is configured with what is served.
func (e *exam) handler(name, where string) {
	switch {
	case e.seen.Handlers == nil:
	case slices.Contains(e.seen.Handlers, name):
		e.add(Finding{OK, "handler", name, "it is configured and served", ""})
	default:
		e.add(Finding{Error, "handler", name, "it is configured at " + where + " and not served", "restart the runtime, and look at its log if that does not help"})
	}
}

func (e *exam) crio() {
	err := e.started()
	if err != nil {
		e.add(Finding{Error, "config", e.dist.CRIO.Main, err.Error(), "start CRI-O with absolute paths, or name the file by --cri-config"})
		return
	}
	c, err := crio.Load(e.dist.CRIO)
	if err != nil {
		e.add(Finding{Error, "config", e.dist.CRIO.Main, err.Error(), "correct the file"})
		return
	}
	e.read(cmp.Or(c.Main, c.DropIns), c.Files(), fmt.Sprintf("%d files, with those in %s", c.Files(), cmp.Or(c.DropIns, "no folder")))
	for _, text := range c.Broken {
		e.add(Finding{Error, "config", e.dist.CRIO.DropIns, text + ": CRI-O keeps what it had, and will not start again", "correct the file, or take it away"})
	}
	for _, path := range c.Temporary {
		e.add(Finding{Warning, "config", path, "it looks half written, and CRI-O reads it all the same", "take it away"})
	}
	e.monitored()
	if len(c.Broken) == 0 {
		e.pending(c.Pending(e.seen.Handlers))
	}
	configured := c.Handlers()
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		e.handler(name, configured[name])
		e.runtimePath(name, c)
		e.conmon(name, c)
		e.runtimeConfig(name, c.RuntimeConfig(name), "runtime_config_path in "+configured[name])
	}
	e.builtIn(c, configured)
}
