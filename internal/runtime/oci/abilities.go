package oci

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go/features"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/pod"
)

// readFeatures asks a runtime for its features, or returns nil for one that has
// no such command.
func readFeatures(ctx context.Context, program string) *features.Features {
	out, err := runArgv(ctx, []string{program, "features"})
	if err != nil {
		return nil
	}
	var f features.Features
	if json.Unmarshal(out, &f) != nil {
		return nil
	}
	return &f
}

// host is what this kernel can do, of the things that runtimes have features for.
type host struct {
	mountSetattr bool
	userNS       bool
	seccomp      bool
	appArmor     bool
	seLinux      bool
}

func hostAbilities() host {
	// No descriptor is -1, so a kernel that knows the call says EBADF.
	err := unix.MountSetattr(-1, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	return host{
		mountSetattr: !errors.Is(err, unix.ENOSYS),
		userNS:       exists("/proc/self/ns/user") && content("/proc/sys/user/max_user_namespaces") != "0",
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

// abilities is what runtime and host together can do.
func (v version) abilities(f *features.Features, h host) pod.HandlerFeatures {
	if f == nil {
		return pod.HandlerFeatures{
			RecursiveReadOnlyMounts: h.mountSetattr && v.name == "crun" && !older(v.number, crunRRO),
			// What Kubernetes calls user namespaces needs mapped mounts too.
			UserNamespaces: false,
			Seccomp:        h.seccomp && strings.Contains(v.flags, "+SECCOMP"),
			AppArmor:       h.appArmor && strings.Contains(v.flags, "+APPARMOR"),
			SELinux:        h.seLinux && strings.Contains(v.flags, "+SELINUX"),
		}
	}
	out := pod.HandlerFeatures{
		RecursiveReadOnlyMounts: h.mountSetattr && slices.Contains(f.MountOptions, "rro"),
	}
	l := f.Linux
	if l == nil {
		return out
	}
	idmap := l.MountExtensions != nil && l.MountExtensions.IDMap != nil && enabled(l.MountExtensions.IDMap.Enabled)
	out.UserNamespaces = h.userNS && h.mountSetattr && idmap && slices.Contains(l.Namespaces, "user")
	out.Seccomp = h.seccomp && l.Seccomp != nil && enabled(l.Seccomp.Enabled)
	out.AppArmor = h.appArmor && l.Apparmor != nil && enabled(l.Apparmor.Enabled)
	out.SELinux = h.seLinux && l.Selinux != nil && enabled(l.Selinux.Enabled)
	return out
}

func enabled(b *bool) bool { return b != nil && *b }
