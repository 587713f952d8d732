package spec

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"fairlead.run/internal/pod"
	"fairlead.run/internal/spec/host"
)

// defaultAppArmor is the name of our own profile in the kernel.
const defaultAppArmor = "fairlead-default"

// appArmorText is that profile. Processes under it may do to each other what
// they like, and may not mount, or write to what belongs to the host in /proc
// and /sys. It is the second line behind namespaces and masked paths.
const appArmorText = `profile ` + defaultAppArmor + ` flags=(attach_disconnected, mediate_deleted) {
  capability,
  file,
  network,
  umount,

  signal (receive) peer={unconfined,runc,crun},
  signal peer=` + defaultAppArmor + `,
  ptrace peer=` + defaultAppArmor + `,

  deny mount,
  deny remount,
  deny pivot_root,

  deny /proc/{kcore,kmem,mem,sysrq-trigger} rwklx,
  deny /proc/{acpi,bus,fs,irq,scsi,tty}/** wklx,
  deny /proc/sys/{abi,debug,dev,fs,vm}/** wklx,
  deny /proc/sys/kernel/{core_pattern,core_pipe_limit,hotplug,modprobe,poweroff_cmd,sysrq} wklx,
  deny /proc/sys/kernel/{kexec_*,keys/**,panic*,perf_*,randomize_va_space,usermodehelper/**,yama/**} wklx,

  deny /sys/{block,bus,class,dev,devices,hypervisor,kernel,module,power}/** wklx,
  deny /sys/fs/{bpf,btrfs,ext4,f2fs,fuse,pstore,resctrl,selinux,xfs}/** wklx,
  deny /sys/{firmware,kernel/security,devices/virtual/powercap}/** rwklx,
}
`

const appArmorField = "linux.security_context.apparmor"

// appArmor confines the process. Nothing said means the default profile, as
// Kubernetes documents it, but where the kernel has no AppArmor.
func (b *build) appArmor(ctx context.Context) error {
	p := b.security().AppArmor
	if p == nil {
		p = &pod.Profile{Type: pod.ProfileRuntimeDefault}
	}
	able := b.cfg.Host.AppArmor && b.req.Handler.Features.AppArmor
	switch p.Type {
	case pod.ProfileUnconfined:
	case pod.ProfileRuntimeDefault:
		if !able || b.security().Privileged {
			return nil
		}
		if err := b.defaultProfile.load(ctx); err != nil {
			b.warn("%s RuntimeDefault: %v; the process is not confined", appArmorField, err)
			return nil
		}
		b.spec.Process.ApparmorProfile = defaultAppArmor
	case pod.ProfileLocalhost:
		if p.Ref == "" || strings.ContainsAny(p.Ref, "\n\x00") {
			return invalid(appArmorField+".localhost_ref", "%q is no name of a profile", p.Ref)
		}
		if !able {
			return unsupported(appArmorField, "names profile %s, and the kernel or handler %s has no AppArmor", p.Ref, b.req.Handler.Name)
		}
		loaded, err := profileLoaded(p.Ref)
		if err != nil {
			return err
		}
		if !loaded {
			return invalid(appArmorField+".localhost_ref", "%s is not loaded on this node; load it with apparmor_parser first", p.Ref)
		}
		b.spec.Process.ApparmorProfile = p.Ref
	default:
		return invalid(appArmorField+".profile_type", "%q is not known", p.Type)
	}
	return nil
}

func profileLoaded(name string) (bool, error) {
	f, err := os.Open(host.AppArmorProfiles)
	if err != nil {
		return false, fmt.Errorf("list AppArmor profiles: %w", err)
	}
	defer func() { _ = f.Close() }()
	for s := bufio.NewScanner(f); s.Scan(); {
		// A name may have spaces in it; the mode behind it has none.
		if i := strings.LastIndexByte(s.Text(), ' '); i > 0 && s.Text()[:i] == name {
			return true, nil
		}
	}
	return false, nil
}

// appArmorLoader loads the default profile once. A failure is tried again by
// the next container: somebody may have installed the parser since.
type appArmorLoader struct {
	mu     sync.Mutex
	loaded bool
}

func (l *appArmorLoader) load(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loaded {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	// -K writes no cache, and -r replaces what an older build loaded.
	cmd := exec.CommandContext(ctx, "apparmor_parser", "-Kr")
	cmd.Stdin = strings.NewReader(appArmorText)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("load the AppArmor profile %s with apparmor_parser: %w: %s", defaultAppArmor, err, strings.TrimSpace(string(out)))
	}
	l.loaded = true
	return nil
}
