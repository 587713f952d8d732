// Package mark gives a process a number by which everything is known that it
// starts. Who looks for that number is the monitor.
package mark

import (
	"math/rand/v2"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
)

// limit is the resource limit that has the number. A process inherits it, and
// hardly any program sets it: it is for time without sleep at real-time priority.
// As one of more than a hundred years it limits nothing.
const limit = "RLIMIT_RTTIME"

// Give marks a process and returns the mark. It returns 0 and leaves a process
// alone that has such a limit already, or where this one has, which a runtime may
// be unable to exceed.
func Give(p *specs.Process) uint64 {
	has := slices.ContainsFunc(p.Rlimits, func(l specs.POSIXRlimit) bool { return l.Type == limit })
	if has || !unlimited() {
		return 0
	}
	m := monitorv1.MinMark + rand.Uint64N(monitorv1.MinMark)
	p.Rlimits = append(p.Rlimits, specs.POSIXRlimit{Type: limit, Hard: m, Soft: m})
	return m
}

func unlimited() bool {
	var own unix.Rlimit
	return unix.Getrlimit(unix.RLIMIT_RTTIME, &own) == nil && own.Max == unix.RLIM_INFINITY
}
