// Package trial makes the bundle of the container with which a handler is tried.
package trial

import (
	"encoding/json"
	"os"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"

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

// BySystemd has systemd make the container's cgroup.
func BySystemd(s *specs.Spec) {
	s.Linux.CgroupsPath = "system.slice:fairlead:" + filepath.Base(s.Linux.CgroupsPath)
}

// Write makes the bundle of a trial in a directory that is empty. Its root has
// what things are mounted on.
func Write(bundle string, s *specs.Spec) error {
	root := filepath.Join(bundle, "rootfs")
	for _, dir := range []string{root, filepath.Join(root, "proc"), filepath.Join(root, "dev")} {
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
