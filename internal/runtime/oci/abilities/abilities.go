// Package abilities works out what an OCI runtime can do on this host, from what
// it says about itself and what the kernel has. It runs nothing.
package abilities

import (
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go/features"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/pod"
	"fairlead.run/internal/runtime/oci/release"
)

// Runtime is what a program says about itself.
type Runtime struct {
	Name   string // "runc", "crun"
	Number string // "1.1.5+ds1"
	Flags  string // "+SYSTEMD +SELINUX ...", of crun
}

// Host is what this kernel can do, of the things that runtimes have features for.
type Host struct {
	mountSetattr bool
	seccomp      bool
	appArmor     bool
	seLinux      bool
}

// OfHost looks at this kernel.
func OfHost() Host {
	// No descriptor is -1, so a kernel that knows the call says EBADF.
	err := unix.MountSetattr(-1, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	return Host{
		mountSetattr: !errors.Is(err, unix.ENOSYS),
		seccomp:      exists("/proc/sys/kernel/seccomp/actions_avail"),
		appArmor:     strings.HasPrefix(content("/sys/module/apparmor/parameters/enabled"), "Y"),
		seLinux:      exists("/sys/fs/selinux/enforce"),
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func content(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// crunRRO is the oldest crun that the contract suite has seen to make mounts
// read-only recursively. Those before 1.8.6 cannot say what they can do.
const crunRRO = "1.8.1"

// Can is what runtime and host together can do. User namespaces are left
// to a trial: some runtimes that say nothing of them can.
func (r Runtime) Can(f *features.Features, h Host) pod.HandlerFeatures {
	if f == nil {
		return pod.HandlerFeatures{
			RecursiveReadOnlyMounts: h.mountSetattr && r.Name == "crun" && !release.Older(r.Number, crunRRO),
			Seccomp:                 h.seccomp && strings.Contains(r.Flags, "+SECCOMP"),
			AppArmor:                h.appArmor && strings.Contains(r.Flags, "+APPARMOR"),
			SELinux:                 h.seLinux && strings.Contains(r.Flags, "+SELINUX"),
		}
	}
	out := pod.HandlerFeatures{
		RecursiveReadOnlyMounts: h.mountSetattr && slices.Contains(f.MountOptions, "rro"),
	}
	l := f.Linux
	if l == nil {
		return out
	}
	out.Seccomp = h.seccomp && l.Seccomp != nil && enabled(l.Seccomp.Enabled)
	out.AppArmor = h.appArmor && l.Apparmor != nil && enabled(l.Apparmor.Enabled)
	out.SELinux = h.seLinux && l.Selinux != nil && enabled(l.Selinux.Enabled)
	return out
}

func enabled(b *bool) bool { return b != nil && *b }
