package workload

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// script says how the pods of slots do, one try after the other: "0 f f s" means
// that two pods of slot 0 fail and one succeeds, after a minute each.
func script(lines ...string) func(string, int) (time.Duration, corev1.PodPhase) {
	tries := map[string]int{}
	return func(pod string, _ int) (time.Duration, corev1.PodPhase) {
		slot, _, _ := strings.Cut(strings.TrimPrefix(pod, "w-"), "-")
		n := tries[slot]
		tries[slot]++
		for _, l := range lines {
			if words := strings.Fields(l); words[0] == slot && n+1 < len(words) && words[n+1] == "f" {
				return time.Minute, corev1.PodFailed
			}
		}
		return time.Minute, corev1.PodSucceeded
	}
}

func TestJobs(t *testing.T) {
	tests := []struct {
		name, spec string
		runs       func(string, int) (time.Duration, corev1.PodPhase)
		made       string // slots and when
		most       int
		state      State
		reason     string
		ended      time.Duration
		kept       int
	}{
		{"one", "", script(), "0+0s", 1, Complete, "", time.Minute, 1},
		{"one after the other", "  completions: 3\n", script(), "0+0s 1+1m0s 2+2m0s", 1, Complete, "", 3 * time.Minute, 3},
		{"two at a time", "  completions: 5\n  parallelism: 2\n", script(), "0+0s 1+0s 2+1m0s 3+1m0s 4+2m0s", 2, Complete, "", 3 * time.Minute, 5},
		{"more at a time than there are", "  completions: 2\n  parallelism: 9\n", script(), "0+0s 1+0s", 2, Complete, "", time.Minute, 2},
		{"none", "  completions: 0\n", script(), "", 0, Complete, "", 0, 0},
		{"indexed", "  completions: 2\n  parallelism: 2\n  completionMode: Indexed\n", script("1 f s"), "0+0s 1+0s 1+1m10s", 2, Complete, "", 130 * time.Second, 3},
		{"backoff", "", script("0 f f f s"), "0+0s 0+1m10s 0+2m30s 0+4m10s", 1, Complete, "", 310 * time.Second, 4},
		{"backoff holds up others", "  completions: 3\n  parallelism: 2\n", script("0 f s"), "0+0s 1+0s 0+1m10s 2+1m10s", 2, Complete, "", 130 * time.Second, 4},
		{"too many failures", "  backoffLimit: 1\n", script("0 f f f"), "0+0s 0+1m10s", 1, Failed, "BackoffLimitExceeded", 130 * time.Second, 2},
		{"no failure is allowed", "  backoffLimit: 0\n  completions: 9\n  parallelism: 3\n", script("1 f"), "0+0s 1+0s 2+0s", 3, Failed, "BackoffLimitExceeded", time.Minute, 3},
		{"deadline", "  activeDeadlineSeconds: 90\n", always(forever, corev1.PodSucceeded), "0+0s", 1, Failed, "DeadlineExceeded", 90 * time.Second, 0},
		{"kept for some time", "  ttlSecondsAfterFinished: 30\n", script(), "0+0s", 1, Complete, "", time.Minute, 0},
		{"queue", "  parallelism: 3\n", script("0 f s"), "0+0s 1+0s 2+0s", 3, Complete, "", time.Minute, 3},
		{"queue whose workers fail first", "  parallelism: 2\n", script("0 f s", "1 f s"), "0+0s 1+0s 0+1m20s 1+1m20s", 2, Complete, "", 140 * time.Second, 4},
		{"suspended", "  suspend: true\n", script(), "", 0, Suspended, "", 0, 0},
		{"no place", "  parallelism: 0\n  completions: 1\n", script(), "", 0, Running, "", 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, jobOf(t, tt.spec), tt.runs)
			w.until(start.Add(time.Hour))
			s := w.last.Status
			if w.slots() != tt.made || w.most != tt.most {
				t.Errorf("made %s, at most %d at once", w.slots(), w.most)
			}
			ended := time.Duration(0)
			if !s.Ended.IsZero() {
				ended = s.Ended.Sub(start)
			}
			if s.State != tt.state || s.Reason != tt.reason || ended != tt.ended || len(w.pods) != tt.kept {
				t.Errorf("%+v, after %s, %d pods are left", s, ended, len(w.pods))
			}
			if (s.State == Complete || s.State == Failed) && !w.last.Again.IsZero() {
				t.Errorf("it is over, and asks to be asked again at %s", w.last.Again)
			}
			// The machine starts anew: what is over stays so.
			w.reboot()
			before := len(w.made)
			w.until(w.now.Add(time.Hour))
			if len(w.made) != before || w.last.Status.State != tt.state {
				t.Errorf("made %s after a reboot", w.slots())
			}
		})
	}
}

// TestJobAndTheClock goes on with a Job when the clock is set back after one of its pods
// has failed, and keeps its pauses by the clock as it is then.
func TestJobAndTheClock(t *testing.T) {
	w := newWorld(t, jobOf(t, ""), script("0 f f s"))
	w.until(start.Add(61 * time.Second)) // the first pod has failed
	w.now = w.now.Add(-24 * time.Hour)
	back := w.now
	w.until(back.Add(5 * time.Minute))
	if got := w.slots(); got != "0+0s 0+-23h58m59s 0+-23h57m39s" {
		t.Errorf("made %s", got)
	}
	if s := w.last.Status; s.State != Complete || s.Failed != 2 {
		t.Errorf("%+v", s)
	}
}

// TestJobIsInterrupted takes its pods away half-way: those that had not succeeded run
// again, as themselves.
func TestJobIsInterrupted(t *testing.T) {
	w := newWorld(t, jobOf(t, "  completions: 3\n"), script())
	w.until(start.Add(90 * time.Second))
	w.reboot()
	w.until(start.Add(time.Hour))
	if got := w.slots(); got != "0+0s 1+1m0s 1+1m30s 2+2m30s" {
		t.Errorf("made %s", got)
	}
	if w.made[1][:len("w-1-00000")] != w.made[2][:len("w-1-00000")] {
		t.Errorf("the second one has another name: %s", w.made)
	}
	if w.last.Status.State != Complete || w.last.Status.Failed != 0 {
		t.Errorf("%+v", w.last.Status)
	}
}

// TestJobRestartsInPlace counts restarts of containers.
func TestJobRestartsInPlace(t *testing.T) {
	job := workload(t, "batch/v1", "Job", "  backoffLimit: 2\n  template: {spec: {restartPolicy: OnFailure, containers: [{name: c, image: i}]}}\n")
	w := newWorld(t, job, always(forever, corev1.PodSucceeded))
	for restarts, want := range []State{Running, Running, Failed} {
		for _, p := range w.pods {
			p.Restarts = restarts
		}
		w.decide()
		if w.last.Status.State != want {
			t.Errorf("after %d restarts it is %s", restarts, w.last.Status.State)
		}
	}
	if len(w.pods) != 0 {
		t.Error("its pod goes on")
	}
}

// TestJobIsSuspended stops a Job and lets it go on, from where it was.
func TestJobIsSuspended(t *testing.T) {
	running, suspended := jobOf(t, "  completions: 3\n  activeDeadlineSeconds: 100\n"), jobOf(t, "  suspend: true\n  completions: 3\n  activeDeadlineSeconds: 100\n")
	w := newWorld(t, running, script())
	w.until(start.Add(90 * time.Second))
	w.w = suspended
	for _, p := range w.pods { // what is ended for that is no failure
		if !p.ended() {
			p.Phase = corev1.PodFailed
		}
	}
	w.until(start.Add(time.Hour))
	if s := w.last.Status; s.State != Suspended || s.Succeeded != 1 || s.Failed != 0 || len(w.last.Want) != 0 {
		t.Errorf("%+v", s)
	}
	w.w = running
	w.until(start.Add(time.Hour + 30*time.Second))
	if s := w.last.Status; s.State != Running || !s.Started.Equal(start.Add(time.Hour)) {
		t.Errorf("%+v", s)
	}
}

// TestJobChanges has what may be changed, and what makes another Job.
func TestJobChanges(t *testing.T) {
	w := newWorld(t, jobOf(t, ""), script())
	w.until(start.Add(time.Hour))
	w.w = jobOf(t, "  ttlSecondsAfterFinished: 7200\n  backoffLimit: 3\n")
	w.until(start.Add(2 * time.Hour))
	if len(w.made) != 1 {
		t.Errorf("it ran again: %s", w.made)
	}
	w.w = workload(t, "batch/v1", "Job", "  template: {spec: {restartPolicy: Never, containers: [{name: c, image: other}]}}\n")
	w.until(start.Add(3 * time.Hour))
	if len(w.made) != 2 || w.made[1][:9] == w.made[0][:9] || len(w.pods) != 1 {
		t.Errorf("another Job: %s", w.made)
	}
}

// TestJobNames are taken for those of their own tries only.
func TestJobNames(t *testing.T) {
	w := jobOf(t, "  completions: 20\n")
	j := newJob(w.Job, &JobRecord{Spec: jobHash(w.Job), Tries: map[int]int{11: 3}}, nil)
	for try := range 5 {
		name := j.name(11, try)
		slot, got, ok := j.parse(manifestKey("default", name))
		if want := try <= 3; ok != want || (ok && (slot != 11 || got != try)) {
			t.Errorf("%s: %d, %d, %t", name, slot, got, ok)
		}
	}
	for _, name := range []string{"w", "w-", "w-11", "w-11-", "w-x-11", "w-11-00000", "v" + j.name(11, 0)[1:], "w-11-web-0", fmt.Sprintf("w-%d-0", 1<<40)} {
		if _, _, ok := j.parse(manifestKey("default", name)); ok {
			t.Errorf("%s is taken for a pod of the Job", name)
		}
	}
	if _, _, ok := j.parse(manifestKey("other", j.name(11, 0))); ok {
		t.Error("a pod of another namespace is taken for one of the Job")
	}
}
