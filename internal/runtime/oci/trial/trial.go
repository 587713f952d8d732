// Package trial makes the bundle of the container with which a handler is tried.
package trial

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/userns"
)

// program is where the monitor's binary is in the container of a trial.
const program = "/fairlead-monitor"

// Join puts the container of a trial into a user namespace.
func Join(s *specs.Spec, h *userns.Holder) {
	s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace, Path: h.Path("user")})
	for _, r := range userns.Everybody {
		m := specs.LinuxIDMapping{ContainerID: r.Inside, HostID: r.Outside, Size: r.Length}
		s.Linux.UIDMappings = append(s.Linux.UIDMappings, m)
		s.Linux.GIDMappings = append(s.Linux.GIDMappings, m)
	}
}

// Sandbox makes the container of a trial the first of a pod, which some shims have
// to know: gVisor's gives others no input and output of their own.
func Sandbox(s *specs.Spec, id string) {
	s.Annotations = map[string]string{"io.kubernetes.cri.container-type": "sandbox", "io.kubernetes.cri.sandbox-id": id}
}

// Spec is a container as small as runtimes take it. Its program is that of the
// monitor, which says word when it runs and ends when its input does.
func Spec(ociVersion, id, monitor, word string) *specs.Spec {
	// The directory above is the trial's own too: one that trials share would
	// be removed by one while another makes its own in it.
	cgroup := "/fairlead-" + id + "/" + id
	return &specs.Spec{
		Version:  ociVersion,
		Hostname: "trial",
		Root:     &specs.Root{Path: "rootfs"},
		Process: &specs.Process{
			Args:            []string{program, "trial", word},
			Cwd:             "/",
			Env:             []string{"PATH=/"},
			NoNewPrivileges: true,
			Capabilities:    &specs.LinuxCapabilities{},
		},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=64k"}},
			{Destination: program, Type: "bind", Source: monitor, Options: []string{"bind", "rprivate", "ro", "nosuid", "nodev"}},
		},
		Linux: &specs.Linux{
			CgroupsPath: cgroup,
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
			},
			MaskedPaths: []string{"/proc/kcore"},
		},
	}
}

// Want gives the container what its program then looks for.
func Want(s *specs.Spec, name string) error {
	switch name {
	case monitorv1.TrialSeccomp:
		s.Linux.Seccomp = &specs.LinuxSeccomp{
			DefaultAction: specs.ActAllow,
			Syscalls:      []specs.LinuxSyscall{{Names: []string{"umask"}, Action: specs.ActErrno}},
		}
	case monitorv1.TrialReadOnly:
		dir, below, err := someMount()
		if err != nil {
			return err
		}
		s.Mounts = append(s.Mounts, specs.Mount{
			Destination: monitorv1.TrialReadOnlyPath, Type: "bind", Source: dir, Options: []string{"rbind", "rprivate", "rro"},
		})
		name += ":" + below
	case monitorv1.TrialDevice:
		const major, minor = 1, 5 // of /dev/zero
		s.Linux.Devices = []specs.LinuxDevice{{Path: monitorv1.TrialDevicePath, Type: "c", Major: major, Minor: minor, FileMode: new(os.FileMode(0o666))}}
		s.Linux.Resources = &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{
			{Allow: false, Access: "rwm"},
			{Allow: true, Type: "c", Major: new(int64(major)), Minor: new(int64(minor)), Access: "rwm"},
		}}
	}
	s.Process.Args = append(s.Process.Args, name)
	return nil
}

// Account lets a sandbox account for what the container uses.
func Account(s *specs.Spec) {
	s.Mounts = append(s.Mounts,
		specs.Mount{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		specs.Mount{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", "ro"}})
}

// someMount is a folder of the host with something mounted below it that can be
// written.
func someMount() (dir, below string, err error) {
	for _, dir := range []string{"/dev", "/sys"} {
		found, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
		if err != nil {
			return "", "", err
		}
		for _, m := range found {
			writable := !slices.Contains(strings.Split(m.Options+","+m.VFSOptions, ","), "ro")
			if below, ok := strings.CutPrefix(m.Mountpoint, dir+"/"); ok && writable {
				return dir, below, nil
			}
		}
	}
	return "", "", errors.New("nothing that can be written is mounted below /dev or /sys of this host, which it could be seen by")
}

// Idle has the program do nothing until it is told to end, like the first
// container of a pod that has one of ours.
func Idle(s *specs.Spec) { s.Process.Args = []string{program, Idling} }

// Idling is an argument of what Idle has run, and of nothing beside it.
const Idling = "pause"

// BySystemd has systemd make the container's cgroup.
func BySystemd(s *specs.Spec) {
	s.Linux.CgroupsPath = "system.slice:fairlead:" + filepath.Base(s.Linux.CgroupsPath)
}

// Write makes the bundle of a trial in a directory that is empty. Its root has
// what things are mounted on.
func Write(bundle string, s *specs.Spec) error {
	root := filepath.Join(bundle, "rootfs")
	for _, dir := range []string{root, filepath.Join(root, "proc"), filepath.Join(root, "dev"), filepath.Join(root, "sys"), filepath.Join(root, monitorv1.TrialReadOnlyPath)} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(root, program), nil, 0o755); err != nil {
		return err
	}
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(bundle, "config.json"), data, 0o600)
}
