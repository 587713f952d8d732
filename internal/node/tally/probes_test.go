package tally

import (
	"strings"
	"testing"
	"time"
)

// TestProbes writes what was counted, and nothing of pods that are gone.
func TestProbes(t *testing.T) {
	var p Probes
	a, b := Probe{"default", "a", "u1", "c", "Liveness"}, Probe{"default", "b", "u2", "c", "Startup"}
	p.Add(b, Unknown, time.Second)
	p.Add(a, Failed, time.Hour)
	p.Add(a, Successful, 25*time.Millisecond) // a bound belongs to what is within
	p.Add(a, Failed, time.Hour)
	const head = "# HELP prober_probe_total Probes of containers by their result.\n# TYPE prober_probe_total counter\n"
	const ofA = `prober_probe_total{container="c",namespace="default",pod="a",pod_uid="u1",probe_type="Liveness",result="failed"} 2
prober_probe_total{container="c",namespace="default",pod="a",pod_uid="u1",probe_type="Liveness",result="successful"} 1
`
	const ofB = `prober_probe_total{container="c",namespace="default",pod="b",pod_uid="u2",probe_type="Startup",result="unknown"} 1
`
	const times = "# HELP prober_probe_duration_seconds How long probes took that have not failed.\n# TYPE prober_probe_duration_seconds histogram\n"
	timesOf := func(labels, sum string, counts ...string) (out string) {
		for i, le := range []string{"0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"} {
			out += "prober_probe_duration_seconds_bucket{" + labels + `,le="` + le + `"} ` + counts[i] + "\n"
		}
		last := counts[len(counts)-1]
		return out + "prober_probe_duration_seconds_sum{" + labels + "} " + sum + "\nprober_probe_duration_seconds_count{" + labels + "} " + last + "\n"
	}
	timesOfA := timesOf(`container="c",namespace="default",pod="a",probe_type="Liveness"`, "0.025", strings.Fields("0 0 1 1 1 1 1 1 1 1 1 1")...)
	timesOfB := timesOf(`container="c",namespace="default",pod="b",probe_type="Startup"`, "1", strings.Fields("0 0 0 0 0 0 0 1 1 1 1 1")...)
	written := func(want string) {
		t.Helper()
		var out strings.Builder
		if err := p.Write(&out); err != nil || out.String() != want {
			t.Errorf("%v: %s\nwant %s", err, &out, want)
		}
	}
	written(head + ofA + ofB + times + timesOfA + timesOfB)
	p.Forget("u1")
	written(head + ofB + times + timesOfB)
	// The next pod of a name has times of the one before as well, as long as both are here,
	// and what has never ended well has none.
	p.Add(Probe{"default", "b", "u3", "c", "Startup"}, Successful, 20*time.Second)
	p.Add(Probe{"default", "a", "u1", "c", "Liveness"}, Failed, time.Second)
	var out strings.Builder
	if err := p.Write(&out); err != nil {
		t.Fatal(err)
	}
	both := timesOf(`container="c",namespace="default",pod="b",probe_type="Startup"`, "21", strings.Fields("0 0 0 0 0 0 0 1 1 1 1 2")...)
	if _, got, _ := strings.Cut(out.String(), times); got != both {
		t.Errorf("%s\nwant %s", got, both)
	}
}
