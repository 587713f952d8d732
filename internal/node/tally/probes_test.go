package tally

import (
	"strings"
	"testing"
)

// TestProbes writes what was counted, and nothing of pods that are gone.
func TestProbes(t *testing.T) {
	var p Probes
	a, b := Probe{"default", "a", "u1", "c", "Liveness"}, Probe{"default", "b", "u2", "c", "Startup"}
	p.Add(b, "unknown")
	p.Add(a, "failed")
	p.Add(a, "successful")
	p.Add(a, "failed")
	const head = "# HELP prober_probe_total Probes of containers by their result.\n# TYPE prober_probe_total counter\n"
	const ofA = `prober_probe_total{container="c",namespace="default",pod="a",pod_uid="u1",probe_type="Liveness",result="failed"} 2
prober_probe_total{container="c",namespace="default",pod="a",pod_uid="u1",probe_type="Liveness",result="successful"} 1
`
	const ofB = `prober_probe_total{container="c",namespace="default",pod="b",pod_uid="u2",probe_type="Startup",result="unknown"} 1
`
	written := func(want string) {
		t.Helper()
		var out strings.Builder
		if err := p.Write(&out); err != nil || out.String() != want {
			t.Errorf("%v: %s", err, &out)
		}
	}
	written(head + ofA + ofB)
	p.Forget("u1")
	written(head + ofB)
}
