package profile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/installer/containerd"
	"fairlead.run/internal/installer/fault"
	"fairlead.run/internal/installer/unitfile"
)

// Start is how a runtime is started.
type Start struct {
	// Args are its command line; the program is an absolute path.
	Args []string
	// Env are its variables, as far as they can be seen.
	Env map[string]string
}

// ReadStart is how a process was started.
func ReadStart(proc string, pid int) (Start, error) {
	dir := filepath.Join(proc, strconv.Itoa(pid))
	line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return Start{}, fmt.Errorf("look how process %d was started: %w", pid, err)
	}
	s := Start{Args: separated(line), Env: map[string]string{}}
	if !filepath.IsAbs(s.Args[0]) {
		if s.Args[0], err = os.Readlink(filepath.Join(dir, "exe")); err != nil {
			return Start{}, fmt.Errorf("look how process %d was started: %w", pid, err)
		}
	}
	// It takes more rights than the command line, and has something to say once in a while.
	if all, err := os.ReadFile(filepath.Join(dir, "environ")); err == nil {
		s.setAll(separated(all))
	}
	return s, nil
}

// separated are strings that zeros end.
func separated(data []byte) []string {
	var all []string
	for a := range bytes.SplitSeq(bytes.TrimRight(data, "\x00"), []byte{0}) {
		all = append(all, string(a))
	}
	return all
}

// setAll sets variables of the form NAME=VALUE, and leaves out what is none.
func (s Start) setAll(list []string) {
	for _, v := range list {
		if name, value, ok := strings.Cut(v, "="); ok {
			s.Env[name] = value
		}
	}
}

// UnitStart is how systemd starts the distribution's runtime by a unit, by what the
// unit's files below root say.
func (d Distribution) UnitStart(root, unit string) (Start, error) {
	args, env, err := unitfile.Command(root, unit)
	if err != nil {
		return Start{}, err
	}
	// It may be started by env, or something else that puts things in order first.
	at := slices.IndexFunc(args, func(a string) bool { return filepath.Base(a) == d.Runtime })
	if at < 0 {
		return Start{}, fmt.Errorf("look how %s is started: its ExecStart begins with %s and names no %s: %w", unit, args[0], d.Runtime, errdefs.ErrNotFound)
	}
	s := Start{Args: args[at:], Env: env}
	if filepath.Base(args[0]) == "env" {
		s.setAll(args[:at])
	}
	return s, nil
}

// Before are the words before the runtime's program in the ExecStart of a unit, none if
// there is no such unit. Variables that env sets there have the values that the running process
// has: what they were made of may be known to systemd alone.
func (d Distribution) Before(root, unit string, running map[string]string) []string {
	args, _, err := unitfile.Command(root, unit)
	at := slices.IndexFunc(args, func(a string) bool { return filepath.Base(a) == d.Runtime })
	if err != nil || at <= 0 {
		return nil
	}
	before := args[:at]
	for n, word := range before[1:] {
		name, _, ok := strings.Cut(word, "=")
		if value, seen := running[name]; ok && seen && filepath.Base(args[0]) == "env" {
			before[n+1] = name + "=" + value
		}
	}
	return before
}

// ContainerdMain is what containerd reads if nobody says another file.
const ContainerdMain = "/etc/containerd/config.toml"

// Config is the file that the distribution's runtime reads if it is started so, and
// whether that says so itself: such a file has to be there for the runtime to start.
func (d Distribution) Config(s Start) (file string, said bool) {
	if d.Runtime == "crio" {
		if file, said = s.setting("CONTAINER_CONFIG", configFlags...); said {
			return file, true
		}
		return d.CRIO.Main, false
	}
	at, file := flag(s.Args, configFlags...)
	if at < 0 {
		return ContainerdMain, false
	}
	return file, true
}

// configFlags are the names of the flag that names the file, of containerd and CRI-O.
var configFlags = []string{"config", "c"}

// setting is what a flag says or, without that, a variable.
func (s Start) setting(variable string, names ...string) (value string, said bool) {
	if at, value := flag(s.Args, names...); at >= 0 {
		return value, true
	}
	value, said = s.Env[variable]
	return value, said
}

// flag is where a command line has a flag of one of some names the last time, which
// counts, and its value; -1 if it has not. It may have one dash or two.
func flag(args []string, names ...string) (at int, value string) {
	at = -1
	for i := 1; i < len(args); i++ {
		name, v, joined := strings.Cut(args[i], "=")
		short, ok := strings.CutPrefix(name, "-")
		if !ok || !slices.Contains(names, strings.TrimPrefix(short, "-")) || !joined && i+1 == len(args) {
			continue
		}
		at, value = i, v
		if !joined {
			i++
			value = args[i]
		}
	}
	return at, value
}

// withConfig is a command line of containerd's with another configuration.
func withConfig(args []string, file string) []string {
	at, _ := flag(args, configFlags...)
	if at < 0 {
		return append(slices.Clone(args), "--config", file)
	}
	after := at + 1
	if !strings.Contains(args[at], "=") {
		after++
	}
	return slices.Concat(args[:at], []string{"--config", file}, args[after:])
}

// Process is the runtime of a node as it runs.
type Process struct {
	Start
	// Unit is that of systemd by which it is restarted; "" if it is in another way.
	Unit string
	// Before are the words that come before the program in the unit's ExecStart, as of env.
	Before []string
	// Write says whether a file of the node can be written: it is nil, or the error of
	// the system.
	Write func(path string) error
}

// Starters is where systemd is told to start containerd with another file.
const Starters = "/etc/systemd/system"

// StartedAs is the distribution with the configuration that its runtime really reads. One
// of containerd's that is on a read-only file system, as on coreos, is the origin of a file
// in /etc, and systemd is to start containerd with that.
func (d Distribution) StartedAs(p Process) (Distribution, error) {
	if d.Runtime == "crio" {
		return d.crioStartedAs(p)
	}
	if d.Containerd.Generated {
		return d, nil
	}
	config, _ := d.Config(p.Start)
	if !filepath.IsAbs(config) {
		return d, fault.New(payload.UnsupportedNode, "containerd is started with the configuration %q, which is no absolute path; say by --cri-config which file that is", config)
	}
	var err error
	if p.Unit != "" {
		d.Containerd.Starter = filepath.Join(Starters, p.Unit+".d", "50-fairlead.conf")
		if d.Containerd.Start, err = containerd.Starter(append(slices.Clone(p.Before), withConfig(p.Args, d.Containerd.Main)...)); err != nil {
			return d, err
		}
	}
	if config == d.Containerd.Main {
		return d, nil
	}
	switch err := p.Write(config); {
	case err == nil, errors.Is(err, os.ErrNotExist):
		d.Containerd.Main = config
		d.Containerd.Starter, d.Containerd.Start = "", nil
	case !errors.Is(err, syscall.EROFS):
		return d, fault.New(payload.UnsupportedNode, "containerd is started with the configuration %s, which cannot be written: %w", config, err)
	case p.Unit == "":
		return d, fault.New(payload.UnsupportedNode, "containerd is started with the configuration %s, which is read-only; start it with --config %s, or have systemd restart it, so that it can be told", config, d.Containerd.Main)
	default:
		d.Containerd.Origin = config
	}
	return d, nil
}

// crioStartedAs is the distribution with the files that its CRI-O really reads. Either may
// be "": then it reads none.
func (d Distribution) crioStartedAs(p Process) (Distribution, error) {
	folder := d.CRIO.DropIns
	d.CRIO.Main, _ = d.Config(p.Start)
	if dir, said := p.setting("CONTAINER_CONFIG_DIR", "config-dir", "d"); said {
		d.CRIO.DropIns = dir
	}
	for _, path := range []string{d.CRIO.Main, d.CRIO.DropIns} {
		if path != "" && !filepath.IsAbs(path) {
			return d, fault.New(payload.UnsupportedNode, "CRI-O is started with the configuration %q, which is no absolute path; say by --cri-config which file that is", path)
		}
	}
	if dir := d.CRIO.DropIns; dir != "" && dir != folder {
		if err := p.Write(dir); err != nil {
			return d, fault.New(payload.UnsupportedNode, "CRI-O is started with the folder of drop-ins %s, which cannot be written: %w", dir, err)
		}
	}
	return d, nil
}
