package installer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"time"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/inroot"
	"fairlead.run/internal/installer/cri"
	"fairlead.run/internal/installer/fault"
	"fairlead.run/internal/installer/files"
	"fairlead.run/internal/installer/journal"
	"fairlead.run/internal/installer/kubelet"
	"fairlead.run/internal/installer/process"
	"fairlead.run/internal/installer/profile"
	"fairlead.run/internal/installer/restart"
	"fairlead.run/internal/installer/view"
)

// DefaultState is where the journal is.
const DefaultState = view.State

// Options say what node this is, as far as that is not to be found out, and how
// patient the installer is. Zero values are filled in.
type Options struct {
	// Root is where the node's root directory is seen.
	Root string
	// OS and Distribution name profiles; Override takes the place of parts of one.
	OS, Distribution string
	profile.Override
	// MachineImage is the name of the machine image that the node is said to have; a node
	// with another operating system is refused.
	MachineImage string
	// BinaryPath is where runtimes are put, and State where the journal is.
	BinaryPath, State string
	// Runtime is containerd or crio, if only that is meant.
	Runtime string
	// Restart says how, by a name of restart, and RestartCommand by what.
	Restart        string
	RestartCommand []string
	// Wait is how long the runtime may take to come back, Interval what is at
	// least between two restarts, and LockWait how long another installer may
	// take.
	Wait, Interval, LockWait time.Duration
	// Linger is how long sandboxes that have ended may hold up a removal.
	Linger time.Duration
	// proc is /proc, but in tests.
	proc string
}

func (o Options) withDefaults() Options {
	if o.State == "" {
		o.State = DefaultState
	}
	if o.Wait == 0 {
		o.Wait = time.Minute
	}
	if o.Interval == 0 {
		o.Interval = time.Minute
	}
	if o.LockWait == 0 {
		o.LockWait = 5 * time.Minute
	}
	if o.Linger == 0 {
		o.Linger = 2 * time.Minute
	}
	if o.proc == "" {
		o.proc = "/proc"
	}
	return o
}

// Installer works on one node.
type Installer struct {
	log        *slog.Logger
	options    Options
	arch       string
	system     profile.OS
	dist       profile.Distribution
	binaryPath string
	journal    journal.Journal
	runtime    cri.Client
	restarter  restart.Restarter
	kubelet    *kubelet.Kubelet
	// named says that the user has said which runtime is meant.
	named bool
}

// New finds out what node this is. Its runtime need not run.
func New(o Options, log *slog.Logger) (*Installer, error) {
	o = o.withDefaults()
	i := &Installer{log: log, options: o, arch: goruntime.GOARCH}
	said, noted, err := profile.ReadMetadata(o.Root, o.State)
	if err != nil {
		return nil, err
	}
	if i.system, err = profile.DetectOS(o.Root, cmp.Or(o.OS, said.OS)); err != nil {
		return nil, err
	}
	if cmp.Or(o.OS, said.OS) == "" { // or somebody has told it apart from its os-release
		if err := profile.CheckImage(o.Root, o.MachineImage); err != nil {
			return nil, err
		}
	}
	i.named = o.Distribution != "" || o.Socket != ""
	i.binaryPath = cmp.Or(o.BinaryPath, said.BinaryPath, i.system.BinaryPath)
	o.Socket, o.Config = cmp.Or(o.Socket, said.Socket), cmp.Or(o.Config, said.Config)
	i.options = o
	choice := profile.Choice{Name: cmp.Or(o.Distribution, said.Distribution), Runtime: o.Runtime, Was: noted}
	k, err := kubelet.Find(o.proc, o.Root)
	switch {
	case err == nil:
		i.kubelet, choice.Endpoint = &k, k.Endpoint
	case !errors.Is(err, errdefs.ErrNotFound):
		return nil, err
	}
	if i.dist, err = profile.Detect(o.Root, choice); err != nil {
		return nil, err
	}
	if i.dist, err = i.dist.With(o.Override); err != nil {
		return nil, err
	}
	i.journal = journal.Journal{Dir: i.real(o.State)}
	i.runtime = cri.Client{Socket: i.real(i.dist.Socket)}
	return i, i.chooseRestart()
}

// chooseRestart makes out how the runtime is restarted on this node.
func (i *Installer) chooseRestart() error {
	o := i.options
	if err := restart.Check(o.Restart, o.RestartCommand); err != nil {
		return err
	}
	method := o.Restart
	if method == "" || method == restart.Auto {
		method = restart.BySystemd
	}
	switch method {
	case restart.BySystemd:
		var err error
		if i.restarter, err = i.systemd(); err != nil {
			return err
		}
	case restart.BySighup:
		if i.dist.Runtime != "crio" {
			return fault.New(payload.ConfigurationProblem, "SIGHUP ends %s; choose systemd, command or none", i.dist.Runtime)
		}
		i.restarter = restart.Hangup{PID: i.runtime.PID, Program: "crio"}
	case restart.ByCommand:
		c, err := restart.CommandOf(o.RestartCommand, o.Root)
		if err != nil {
			return fault.New(payload.ConfigurationProblem, "%w", err)
		}
		i.restarter = c
	default:
		i.restarter = restart.None{}
	}
	return nil
}

// systemd restarts the runtime's unit.
func (i *Installer) systemd() (restart.Restarter, error) {
	cgroup := ""
	pid, down := i.runtime.PID()
	if down == nil {
		// One that cannot be read is as one that names none of the units.
		text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
		cgroup = string(text)
	}
	unit, err := i.dist.Unit(i.options.Root, cgroup)
	if err != nil {
		unit, err = i.dist.Unit(i.root(), cgroup)
	}
	switch {
	case err == nil:
		return restart.Systemd{Unit: unit, Bus: i.real("/run/dbus/system_bus_socket")}, nil
	case errors.Is(down, errdefs.ErrUnavailable):
		return unseenUnit{i}, nil
	}
	return nil, fault.New(payload.UnsupportedNode, "%w", err)
}

// unseenUnit restarts the runtime's unit where that can be told only while the runtime runs,
// as of two units by its cgroup, and did not when the installer was made.
type unseenUnit struct{ *Installer }

// String implements restart.Restarter.
func (u unseenUnit) String() string { return "restart by systemd" }

// Restart implements restart.Restarter.
func (u unseenUnit) Restart(ctx context.Context) error {
	r, err := u.systemd()
	if err != nil {
		return err
	}
	if _, ok := r.(unseenUnit); ok {
		return fmt.Errorf("restart %s: it does not run, so that it cannot be seen which unit starts it; start it, or name the unit by --unit: %w", u.dist.Runtime, errdefs.ErrUnavailable)
	}
	return r.Restart(ctx)
}

// node has the files of the node.
func (i *Installer) node() files.Root { return files.Root(i.options.Root) }

// host is where a path of the node is seen from here, with the links above it
// followed; real follows it as well, if it is a link.
func (i *Installer) host(path string) string { return i.node().Parent(path) }
func (i *Installer) real(path string) string { return i.node().Real(path) }

// root is where all of the node is seen. In a container that is no more mounted than
// what is written: the rest is in the root directory of the runtime's process.
func (i *Installer) root() string {
	if filepath.Clean("/"+i.options.Root) == "/" {
		return "/"
	}
	if pid, err := i.runtime.PID(); err == nil {
		root := "/proc/" + strconv.Itoa(pid) + "/root"
		there, err := os.Stat(inroot.Join(root, i.dist.Socket))
		here, failed := os.Stat(i.runtime.Socket)
		if err == nil && failed == nil && os.SameFile(there, here) { // else it is not the node's
			return root
		}
	}
	return i.options.Root
}

// lock waits for other installers, and takes away what one that was killed was writing, as
// a runtime might read it. What it returns gives the lock back.
func (i *Installer) lock(ctx context.Context) (func(), error) {
	ctx, cancel := context.WithTimeout(ctx, i.options.LockWait)
	defer cancel()
	release, err := i.journal.Lock(ctx.Done())
	if err != nil && errors.Is(err, errdefs.ErrUnavailable) {
		return nil, fault.New(payload.Busy, "%w", err)
	}
	if err != nil {
		return nil, err
	}
	unlock := func() {
		// One who has recorded nothing leaves nothing.
		if err := i.purge(); err != nil {
			i.log.Warn("the journal was not removed", "err", err)
		}
		release()
	}
	if err := i.sweep(); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// sweep removes temporary files from where the installer has written.
func (i *Installer) sweep() error {
	all, err := i.journal.All()
	if err != nil {
		return err
	}
	var paths []string
	for _, r := range all {
		paths = append(paths, r.Written...)
		for _, f := range r.Files {
			paths = append(paths, f.Path)
		}
	}
	return i.node().Sweep(paths)
}

// KeepAway keeps installers away from the node until it is given back, and writes nothing.
// It wraps errdefs.ErrUnavailable while one is at work.
func (i *Installer) KeepAway() (giveBack func(), err error) { return i.journal.KeepAway() }

// describe writes what kind of node this is, for others.
func (i *Installer) describe() error {
	dist, err := i.asStarted()
	if err != nil {
		return err
	}
	config := dist.CRIO.Main
	if dist.Runtime == "containerd" {
		config = dist.Containerd.Main
	}
	return profile.WriteMetadata(i.journal.Dir, profile.Metadata{
		OS: i.system.Name, BinaryPath: i.binaryPath, Distribution: i.dist.Name, Socket: i.dist.Socket, Config: config, Ctr: i.system.FindCtr(i.root()),
	})
}

// purge removes the journal if there is nothing in it.
func (i *Installer) purge() error {
	types, err := i.journal.Types()
	if err == nil && len(types) == 0 {
		err = profile.ForgetMetadata(i.journal.Dir)
	}
	return errors.Join(err, i.journal.Purge())
}

// ask asks the runtime, and says what to do where it does not run.
func (i *Installer) ask(ctx context.Context) (cri.Seen, error) {
	s, err := i.runtime.Probe(ctx)
	if errors.Is(err, errdefs.ErrUnavailable) && !cri.Absent(err) {
		err = fmt.Errorf("%w; start %s if it does not run (journalctl -u %s says why it has ended), or say by --distribution and --cri-socket what this node has", err, i.dist.Runtime, strings.Join(i.dist.Units, " -u "))
	}
	return s, err
}

// look asks the runtime, and refuses what cannot be worked with.
func (i *Installer) look(ctx context.Context) (cri.Seen, error) {
	s, err := i.ask(ctx)
	if err != nil {
		return s, err
	}
	name := map[string]string{"containerd": "containerd", "crio": "cri-o"}[i.dist.Runtime]
	if s.Name != name {
		return s, fault.New(payload.UnsupportedNode, "%s serves %s, and not %s; say by --distribution and --cri-socket what this node has", i.dist.Socket, s.Name, name)
	}
	major, minor, err := s.Release()
	switch {
	case err != nil:
		return s, err
	case s.Name == "containerd" && (major < 1 || major == 1 && minor < 6):
		return s, fault.New(payload.UnsupportedNode, "containerd %s is too old; it takes 1.6", s.Version)
	case s.Name == "cri-o" && s.Handlers == nil:
		return s, fault.New(payload.UnsupportedNode, "CRI-O %s does not tell its handlers, so that nothing could be verified; it takes 1.31", s.Version)
	}
	return s, nil
}

// systemdCgroup says whether the node's own handler has its cgroups by systemd.
func systemdCgroup(s cri.Seen) bool {
	on, _ := s.Loaded["runc"].Options["SystemdCgroup"].(bool)
	return on
}

// lastRestart is when the runtime began to run, as far as that can be seen.
func (i *Installer) lastRestart() time.Time {
	last := i.journal.LastRestart()
	pid, err := i.runtime.PID()
	if err != nil {
		return last
	}
	if began, err := process.Started(pid); err == nil && began.After(last) {
		return began
	}
	return last
}
