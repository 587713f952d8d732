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

// ReadCommand is the command line of a process; its program is an absolute path.
func ReadCommand(proc string, pid int) ([]string, error) {
	dir := filepath.Join(proc, strconv.Itoa(pid))
	line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return nil, fmt.Errorf("look how process %d was started: %w", pid, err)
	}
	var args []string
	for a := range bytes.SplitSeq(bytes.TrimRight(line, "\x00"), []byte{0}) {
		args = append(args, string(a))
	}
	if !filepath.IsAbs(args[0]) {
		if args[0], err = os.Readlink(filepath.Join(dir, "exe")); err != nil {
			return nil, fmt.Errorf("look how process %d was started: %w", pid, err)
		}
	}
	return args, nil
}

// UnitCommand is the command line of the containerd that systemd starts by a unit, by
// what the unit's files below root say.
func UnitCommand(root, unit string) ([]string, error) {
	args, err := unitfile.Command(root, unit)
	if err != nil {
		return nil, err
	}
	// It may be started by env, or something else that puts things in order first.
	at := slices.IndexFunc(args, func(a string) bool { return filepath.Base(a) == "containerd" })
	if at < 0 {
		return nil, fmt.Errorf("look how %s is started: its ExecStart begins with %s and names no containerd: %w", unit, args[0], errdefs.ErrNotFound)
	}
	return args[at:], nil
}

// Config is the file that a command line has containerd read, and whether it says so
// itself: such a file has to be there for containerd to start.
func Config(args []string) (file string, said bool) {
	at, file := configFlag(args)
	return file, at >= 0
}

// ContainerdMain is what containerd reads if nobody says another file.
const ContainerdMain = "/etc/containerd/config.toml"

// configFlag is where the flag with the configuration is in containerd's command line,
// and the file that it names; -1 if there is none.
func configFlag(args []string) (at int, file string) {
	for i, a := range args {
		if i == 0 {
			continue
		}
		name, value, joined := strings.Cut(a, "=")
		if name != "--config" && name != "-config" && name != "-c" && name != "--c" {
			continue
		}
		if joined {
			return i, value
		}
		if i+1 < len(args) {
			return i, args[i+1]
		}
	}
	return -1, ContainerdMain
}

// withConfig is a command line of containerd's with another configuration.
func withConfig(args []string, file string) []string {
	at, _ := configFlag(args)
	if at < 0 {
		return append(slices.Clone(args), "--config", file)
	}
	after := at + 1
	if !strings.Contains(args[at], "=") {
		after++
	}
	return slices.Concat(args[:at], []string{"--config", file}, args[after:])
}

// Process is the containerd of a node as it runs.
type Process struct {
	// Args are its command line.
	Args []string
	// Unit is that of systemd by which it is restarted; "" if it is in another way.
	Unit string
	// Write says whether a file of the node can be written: it is nil, or the error of
	// the system.
	Write func(path string) error
}

// Starters is where systemd is told to start containerd with another file.
const Starters = "/etc/systemd/system"

// StartedAs is the distribution with the configuration that its containerd really reads.
// One that is on a read-only file system, as on coreos, is the origin of a file in /etc,
// and systemd is to start containerd with that.
func (d Distribution) StartedAs(p Process) (Distribution, error) {
	if d.Runtime != "containerd" || d.Containerd.Generated {
		return d, nil
	}
	_, config := configFlag(p.Args)
	if !filepath.IsAbs(config) {
		return d, fault.New(payload.UnsupportedNode, "containerd is started with the configuration %q, which is no absolute path; say by --cri-config which file that is", config)
	}
	var err error
	if p.Unit != "" {
		d.Containerd.Starter = filepath.Join(Starters, p.Unit+".d", "50-fairlead.conf")
		if d.Containerd.Start, err = containerd.Starter(withConfig(p.Args, d.Containerd.Main)); err != nil {
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
