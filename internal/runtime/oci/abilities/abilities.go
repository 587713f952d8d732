// Package abilities works out what an OCI runtime can do on this host, from what
// it says about itself and what the kernel has. It runs nothing.
package abilities

import (
	"os"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go/features"

	"fairlead.run/internal/pod"
)

// Runtime is what a program says about itself.
type Runtime struct {
	Name   string // "runc", "crun"
	Number string // "1.1.5+ds1"
	Flags  string // "+SYSTEMD +SELINUX ...", of crun
}

// Host is what this kernel can do, of the things that runtimes have features for.
type Host struct {
	appArmor bool
	seLinux  bool
}

// OfHost looks at this kernel.
func OfHost() Host {
	return Host{
		appArmor: strings.HasPrefix(content("/sys/module/apparmor/parameters/enabled"), "Y"),
		seLinux:  exists("/sys/fs/selinux/enforce"),
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

// Can is what runtime and host together can do, of what no trial shows: a container
// with a label needs a policy of the host that has it. The rest is seen in trials.
func (r Runtime) Can(f *features.Features, h Host) pod.HandlerFeatures {
	if f == nil {
		return pod.HandlerFeatures{
			AppArmor: h.appArmor && strings.Contains(r.Flags, "+APPARMOR"),
			SELinux:  h.seLinux && strings.Contains(r.Flags, "+SELINUX"),
		}
	}
	var out pod.HandlerFeatures
	l := f.Linux
	if l == nil {
		return out
	}
	out.AppArmor = h.appArmor && l.Apparmor != nil && enabled(l.Apparmor.Enabled)
	out.SELinux = h.seLinux && l.Selinux != nil && enabled(l.Selinux.Enabled)
	return out
}

func enabled(b *bool) bool { return b != nil && *b }
