package machine

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// TestPatience looks at the clock again before it could have jumped far past a time.
func TestPatience(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, tt := range []struct{ until, want time.Duration }{{time.Hour, 30 * time.Second}, {31 * time.Second, 30 * time.Second}, {time.Second, time.Second}, {-time.Hour, -time.Hour}} {
		if got := patience(now.Add(tt.until), now); got != tt.want {
			t.Errorf("until %s it waits for %s, not %s", tt.until, got, tt.want)
		}
	}
}

// jobOf is a Job whose pod runs on.
func jobOf(name string) string {
	return strings.NewReplacer("name: sum", "name: "+name, "exit 0", "run").Replace(job)
}

// starts counts the pods whose names begin like this and whose containers were started.
func (p *place) starts(prefix string) int {
	return len(slices.DeleteFunc(slices.Clone(p.fake.Calls("start")), func(c string) bool { return !strings.HasPrefix(c, "start "+prefix) }))
}

// block has a folder in the place of a file, so that nobody can write that. The file is there
// no more from one moment to the next.
func (p *place) block(file string) {
	p.t.Helper()
	aside := file + ".blocked"
	if err := os.MkdirAll(aside+"/x", 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := unix.Renameat2(unix.AT_FDCWD, aside, unix.AT_FDCWD, file, unix.RENAME_EXCHANGE); err != nil {
		p.t.Fatal(err)
	}
}

// TestJobsNotRecorded starts and ends other pods while what Jobs have done cannot be
// written down, and leaves those of Jobs as they are.
func TestJobsNotRecorded(t *testing.T) {
	p := newPlace(t)
	p.write("long.yaml", jobOf("long"))
	p.write("gone.yaml", jobOf("gone"))
	p.write("a.yaml", podOf("a", "run", ""))
	p.boot()
	if code, answer := p.ask("POST", "/objects", jobOf("taken")); code != 200 {
		t.Fatal(answer)
	}
	p.await("all", func() bool {
		return p.starts("long-") == 1 && p.starts("gone-") == 1 && p.starts("taken-") == 1 && p.phase("a") == "Running"
	})
	var taken corev1.Pod
	for name, pod := range p.pods() {
		if strings.HasPrefix(name, "taken-") {
			taken = pod
		}
	}
	record := p.dir + "/lib/workloads.json"
	p.block(record)
	p.write("new.yaml", jobOf("new"))
	p.await("what is wrong", func() bool { return p.told("JobsNotRecorded", "workloads.json") })
	if code, answer := p.ask("GET", "/objects/Pod/"+taken.Name+"/readiness?namespace=default", ""); code != 200 || answer != "{}" {
		t.Errorf("a pod that stays as it is: %d %s", code, answer)
	}
	if code, answer := p.ask("DELETE", "/objects/Job/taken?namespace=default", ""); code != 200 || !strings.Contains(answer, string(taken.UID)) {
		t.Errorf("%d %s, which does not tell of %s", code, answer, taken.UID)
	}
	p.write("b.yaml", podOf("b", "run", ""))
	p.write("db.yaml", set)
	p.remove("a.yaml")
	p.remove("gone.yaml")
	p.await("the others", func() bool {
		return p.phase("b") == "Running" && p.phase("db-2") == "Running" && p.phase("a") == "" && len(p.fake.Sandboxes()) == 5
	})
	if p.starts("new-") != 0 || len(p.fake.Calls("stop long")) != 0 {
		t.Errorf("%q", p.fake.Calls(""))
	}
	if err := os.RemoveAll(record); err != nil {
		t.Fatal(err)
	}
	p.write("new.yaml", jobOf("new")+"# now\n")
	p.await("the Job", func() bool { return p.starts("new-") == 1 })
	if len(p.fake.Calls("stop long")) != 0 || p.starts("long-") != 1 {
		t.Errorf("%q", p.fake.Calls(""))
	}
}

// TestJobsUnknown runs other pods where what Jobs have done cannot be read, and touches
// nothing that these have left until it can. A pod whose manifest has changed meanwhile
// comes when the one before it has gone.
func TestJobsUnknown(t *testing.T) {
	p := newPlace(t)
	p.write("long.yaml", jobOf("long"))
	p.write("once.yaml", strings.Replace(job, "name: sum", "name: once", 1))
	p.write("web.yaml", podOf("web", "run", ""))
	done := func() bool {
		for name, pod := range p.pods() {
			if strings.HasPrefix(name, "once-") && pod.Status.Phase == corev1.PodSucceeded {
				return p.starts("long-") == 1
			}
		}
		return false
	}
	p.boot()
	p.await("the Jobs", func() bool { return done() && p.phase("web") == "Running" })
	p.stop()
	p.write("web.yaml", podOf("web", "run on", ""))
	record := p.dir + "/lib/workloads.json"
	if err := errors.Join(os.Rename(record, record+".good"), os.WriteFile(record, []byte(`{"Job `), 0o600)); err != nil {
		t.Fatal(err)
	}
	p.boot()
	p.write("a.yaml", podOf("a", "run", ""))
	p.await("the pod", func() bool {
		return p.phase("a") == "Running" && p.told("JobsUnknown", "remove it to have all of them run again")
	})
	p.await("the other pod", func() bool { return p.fake.Of("web/c") == "create, start, stop in 30s, create, start" })
	if err := os.Rename(record+".good", record); err != nil {
		t.Fatal(err)
	}
	p.write("b.yaml", podOf("b", "run", ""))
	p.await("the Jobs again", func() bool { return p.phase("b") == "Running" && done() })
	if p.starts("long-") != 1 || p.starts("once-") != 1 || len(p.fake.Calls("stop long")) != 0 {
		t.Errorf("%q", p.fake.Calls(""))
	}
}

// TestWorkloadEvents tells of a Job what its controller would.
func TestWorkloadEvents(t *testing.T) {
	p := newPlace(t)
	p.write("job.yaml", job)
	p.boot()
	told := func() string {
		var out []string
		events, _, _ := p.machine.events.since(0)
		for _, e := range events {
			if o := e.InvolvedObject; o.Kind == "Job" && o.APIVersion == "batch/v1" && o.Name == "sum" && o.Namespace == "default" {
				out = append(out, fmt.Sprintf("%s %d", e.Reason, e.Count))
			}
		}
		return strings.Join(out, ", ")
	}
	p.await("its end", func() bool { return strings.Contains(told(), "Completed") })
	p.stop()
	p.boot()
	p.await("the pod again", func() bool { return len(p.pods()) == 1 })
	if got := told(); got != "SuccessfulCreate 1, Completed 1" {
		t.Error(got)
	}
}
