package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"sort"
	"strings"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// sysctl is a kernel parameter of a pod.
type sysctl struct {
	name  string // as the caller wrote it
	value string
}

// ipcSysctls belong to the IPC namespace. Those of the network all begin with
// "net/", and whatever else there is belongs to the whole node.
var ipcSysctls = []string{"kernel/shm", "kernel/msg", "kernel/sem", "fs/mqueue/"}

// scopeOf is the namespace flag that a parameter needs.
func scopeOf(name string) (int, error) {
	p := sysctlPath(name)
	if p != path.Clean(p) || path.IsAbs(p) || strings.HasPrefix(p, "..") || strings.ContainsRune(p, 0) || !strings.Contains(p, "/") {
		return 0, fmt.Errorf("sysctl %q is no name of a kernel parameter: %w", name, errdefs.ErrInvalidArgument)
	}
	if strings.HasPrefix(p, "net/") {
		return unix.CLONE_NEWNET, nil
	}
	for _, prefix := range ipcSysctls {
		// "kernel/sem" is a whole name; the others are beginnings.
		if p == prefix || prefix != "kernel/sem" && strings.HasPrefix(p, prefix) {
			return unix.CLONE_NEWIPC, nil
		}
	}
	return 0, fmt.Errorf("sysctl %q is not of a namespace, so that it would change the whole node; set it on the node instead: %w", name, errdefs.ErrInvalidArgument)
}

// sysctlPath is a name as a path below /proc/sys. As sysctl(8) has it, the
// first separator decides what separates: in "net/ipv4/conf/eth0.1/forwarding"
// the dot is part of a name.
func sysctlPath(name string) string {
	if i := strings.IndexAny(name, "./"); i >= 0 && name[i] == '/' {
		return name
	}
	return strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}, name)
}

// sysctls merges the defaults with what the pod wants, in the order of their
// names. A wish without the namespace for it is refused; a default is dropped.
func sysctls(defaults, want map[string]string, flags int) ([]sysctl, error) {
	merged := map[string]sysctl{}
	for name, value := range defaults {
		if scope, err := scopeOf(name); err == nil && flags&scope != 0 {
			merged[sysctlPath(name)] = sysctl{name, value}
		}
	}
	for name, value := range want {
		scope, err := scopeOf(name)
		if err != nil {
			return nil, err
		}
		if flags&scope == 0 {
			return nil, fmt.Errorf("sysctl %q would change the node, whose %s namespace the pod uses: %w", name, scopeName(scope), errdefs.ErrInvalidArgument)
		}
		merged[sysctlPath(name)] = sysctl{name, value}
	}
	out := make([]sysctl, 0, len(merged))
	for _, s := range merged {
		out = append(out, s)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].name < out[j].name })
	return out, nil
}

func scopeName(flag int) string {
	if flag == unix.CLONE_NEWNET {
		return "network"
	}
	return "IPC"
}

// waits says whether the parameter belongs to a network interface, which a
// new namespace does not have yet.
func (s sysctl) waits() bool {
	f := strings.Split(sysctlPath(s.name), "/")
	return len(f) == 5 && f[0] == "net" && (f[2] == "conf" || f[2] == "neigh") && f[3] != "all" && f[3] != "default"
}

// ofIPC says whether the parameter belongs to an IPC namespace.
func (s sysctl) ofIPC() bool {
	scope, err := scopeOf(s.name)
	return err == nil && scope == unix.CLONE_NEWIPC
}

// set writes the parameter in the namespaces of the thread that it runs on.
func (s sysctl) set() error {
	f, err := os.OpenFile("/proc/sys/"+sysctlPath(s.name), os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("set sysctl %q: the kernel has no such parameter in a pod: %w: %w", s.name, err, errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return fmt.Errorf("set sysctl %q: %w", s.name, err)
	}
	_, err = f.WriteString(s.value)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ERANGE) {
		return fmt.Errorf("set sysctl %q: the kernel does not take the value %q: %w", s.name, s.value, errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return fmt.Errorf("set sysctl %q to %q: %w", s.name, s.value, err)
	}
	return nil
}
