package mark

import (
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	monitorv1 "fairlead.run/api/monitor/v1"
)

func TestGive(t *testing.T) {
	if !unlimited() {
		t.Skip("this process has a limit RLIMIT_RTTIME, so that none of its children can have a larger one")
	}
	files := specs.POSIXRlimit{Type: "RLIMIT_NOFILE", Hard: 5, Soft: 4}
	a, b := &specs.Process{Rlimits: []specs.POSIXRlimit{files}}, &specs.Process{}
	m := Give(a)
	if m < monitorv1.MinMark || m >= 2*monitorv1.MinMark || len(a.Rlimits) != 2 || a.Rlimits[0] != files || a.Rlimits[1] != (specs.POSIXRlimit{Type: limit, Hard: m, Soft: m}) {
		t.Errorf("mark %d: %+v", m, a.Rlimits)
	}
	if other := Give(b); other == m {
		t.Errorf("two processes have the mark %d", m)
	}
	// The administrator's, or a plugin's.
	own := specs.POSIXRlimit{Type: limit, Hard: 7, Soft: 7}
	c := &specs.Process{Rlimits: []specs.POSIXRlimit{own}}
	if m := Give(c); m != 0 || len(c.Rlimits) != 1 || c.Rlimits[0] != own {
		t.Errorf("mark %d: %+v", m, c.Rlimits)
	}
}
