// Package host observes what this machine lets containers have: control groups,
// capabilities, security modules and limits.
//
// It changes nothing, and decides nothing about any container.
package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/moby/sys/capability"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/limits"
)

// AppArmorProfiles lists the profiles that are loaded: "name (mode)" on each line.
const AppArmorProfiles = "/sys/kernel/security/apparmor/profiles"

// RlimitNumbers are the limits of Linux, by their names in the OCI spec.
var RlimitNumbers = map[string]int{
	"RLIMIT_AS": unix.RLIMIT_AS, "RLIMIT_CORE": unix.RLIMIT_CORE, "RLIMIT_CPU": unix.RLIMIT_CPU,
	"RLIMIT_DATA": unix.RLIMIT_DATA, "RLIMIT_FSIZE": unix.RLIMIT_FSIZE, "RLIMIT_LOCKS": unix.RLIMIT_LOCKS,
	"RLIMIT_MEMLOCK": unix.RLIMIT_MEMLOCK, "RLIMIT_MSGQUEUE": unix.RLIMIT_MSGQUEUE, "RLIMIT_NICE": unix.RLIMIT_NICE,
	"RLIMIT_NOFILE": unix.RLIMIT_NOFILE, "RLIMIT_NPROC": unix.RLIMIT_NPROC, "RLIMIT_RSS": unix.RLIMIT_RSS,
	"RLIMIT_RTPRIO": unix.RLIMIT_RTPRIO, "RLIMIT_RTTIME": unix.RLIMIT_RTTIME, "RLIMIT_SIGPENDING": unix.RLIMIT_SIGPENDING,
	"RLIMIT_STACK": unix.RLIMIT_STACK,
}

// Host is what this host lets containers have, as it was observed.
type Host struct {
	Unified      bool     // cgroup v2 holds every controller
	Swap         bool     // the memory controller accounts swap
	Capabilities []string // those that exist and that can be passed on: "CAP_CHOWN"
	SysResource  bool     // this process has CAP_SYS_RESOURCE
	OOMScoreAdj  int      // this process's own
	Seccomp      bool
	X32          bool // the kernel may run programs of the x32 ABI
	AppArmor     bool
	Rlimits      map[string]uint64 // this process's own hard limits: "RLIMIT_NOFILE"
}

// Probe observes the host. A thing that cannot be observed is taken to be
// missing, but for capabilities: without them there are no containers.
func Probe() (Host, error) {
	h := Host{Rlimits: map[string]uint64{}}
	l := limits.Observe()
	h.Unified, h.Swap = l.Unified, l.Swap
	caps, err := capability.NewPid2(0)
	if err == nil {
		err = caps.Load()
	}
	if err != nil {
		return Host{}, fmt.Errorf("read the capabilities of this process: %w", err)
	}
	supported, err := capability.ListSupported()
	if err != nil {
		return Host{}, fmt.Errorf("read the capabilities of the kernel: %w", err)
	}
	for _, c := range supported {
		if caps.Get(capability.BOUNDING, c) && caps.Get(capability.PERMITTED, c) {
			h.Capabilities = append(h.Capabilities, CapabilityName(c))
		}
	}
	h.SysResource = caps.Get(capability.EFFECTIVE, capability.CAP_SYS_RESOURCE)
	h.OOMScoreAdj = ownOOMScoreAdj()
	h.Seccomp = exists("/proc/sys/kernel/seccomp/actions_avail")
	h.X32 = x32()
	enabled, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	h.AppArmor = err == nil && strings.HasPrefix(string(enabled), "Y") && exists(AppArmorProfiles)
	for name, n := range RlimitNumbers {
		var l unix.Rlimit
		if unix.Getrlimit(n, &l) == nil {
			h.Rlimits[name] = l.Max
		}
	}
	return h, nil
}

// CapabilityName is a capability as the OCI spec writes it: "CAP_CHOWN".
func CapabilityName(c capability.Cap) string { return "CAP_" + strings.ToUpper(c.String()) }

// filtered says whether this process's own system calls are filtered, or that
// this cannot be found out.
func filtered() bool {
	b, err := os.ReadFile("/proc/self/status")
	return err != nil || !strings.Contains(string(b), "\nSeccomp:\t0\n")
}

func ownOOMScoreAdj() int {
	b, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return n
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return !errors.Is(err, fs.ErrNotExist)
}
