package workload

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/manifest"
)

func manifestKey(namespace, name string) manifest.Key {
	return manifest.Key{Namespace: namespace, Name: name}
}

// times are when pods were made.
func (w *world) times() string {
	var out []string
	for _, m := range w.made {
		_, at, _ := strings.Cut(m, "+")
		out = append(out, at)
	}
	return strings.Join(out, " ")
}

func TestCronJobs(t *testing.T) {
	const every10 = "  schedule: '*/10 * * * *'\n  timeZone: UTC\n"
	long := func(_ string, n int) (time.Duration, corev1.PodPhase) { // the first one takes longer
		if n == 0 {
			return 25 * time.Minute, corev1.PodSucceeded
		}
		return time.Minute, corev1.PodSucceeded
	}
	tests := []struct {
		name, spec string
		runs       func(string, int) (time.Duration, corev1.PodPhase)
		times      string
		most       int
		succeeded  int
		failed     int
	}{
		{"short", every10, always(time.Minute, corev1.PodSucceeded), "10m0s 20m0s 30m0s 40m0s", 1, 3, 0},
		{"failing", every10, always(time.Minute, corev1.PodFailed), "10m0s 20m0s 30m0s 40m0s", 1, 0, 1},
		{"history", every10 + "  successfulJobsHistoryLimit: 1\n", always(time.Minute, corev1.PodSucceeded), "10m0s 20m0s 30m0s 40m0s", 1, 1, 0},
		{"no history", every10 + "  successfulJobsHistoryLimit: 0\n", always(time.Minute, corev1.PodSucceeded), "10m0s 20m0s 30m0s 40m0s", 1, 0, 0},
		{"allow", every10 + "  concurrencyPolicy: Allow\n", long, "10m0s 20m0s 30m0s 40m0s", 2, 3, 0},
		{"forbid", every10 + "  concurrencyPolicy: Forbid\n", long, "10m0s 35m0s 40m0s", 1, 3, 0},
		{"forbid, and too late then", every10 + "  concurrencyPolicy: Forbid\n  startingDeadlineSeconds: 60\n", long, "10m0s 40m0s", 1, 2, 0},
		{"replace", every10 + "  concurrencyPolicy: Replace\n", long, "10m0s 20m0s 30m0s 40m0s", 1, 3, 0},
		{"suspended", every10 + "  suspend: true\n", long, "", 0, 0, 0},
		{"every", "  schedule: '@every 17m'\n", always(time.Minute, corev1.PodSucceeded), "17m0s 34m0s", 1, 2, 0},
		{"in a zone", "  schedule: '30 17 * * *'\n  timeZone: Asia/Kolkata\n", always(time.Minute, corev1.PodSucceeded), "", 0, 0, 0}, // 12:00 there is not after 12:00
		{"in another zone", "  schedule: '0 18 * * *'\n  timeZone: Asia/Kolkata\n", always(time.Minute, corev1.PodSucceeded), "30m0s", 1, 1, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, cronOf(t, tt.spec), tt.runs)
			w.until(start.Add(45 * time.Minute))
			if s := w.last.Status; w.times() != tt.times || w.most != tt.most || s.Succeeded != tt.succeeded || s.Failed != tt.failed {
				t.Errorf("started after %q, at most %d at once; %+v", w.times(), w.most, s)
			}
			if len(w.record.Cron.Runs) > tt.succeeded+tt.failed {
				t.Errorf("%d runs are kept", len(w.record.Cron.Runs))
			}
		})
	}
}

// TestCronJobAfterABreak comes back after the machine was off: the latest time that
// was missed is made up for, if it is not too late.
func TestCronJobAfterABreak(t *testing.T) {
	for spec, want := range map[string]string{
		"":                                 "10m0s 24h5m0s 24h10m0s",
		"  startingDeadlineSeconds: 299\n": "10m0s 24h10m0s",
		"  startingDeadlineSeconds: 300\n": "10m0s 24h5m0s 24h10m0s",
	} {
		w := newWorld(t, cronOf(t, "  schedule: '*/10 * * * *'\n  timeZone: UTC\n"+spec), always(time.Minute, corev1.PodSucceeded))
		w.until(start.Add(15 * time.Minute))
		w.reboot()
		w.now = start.Add(24*time.Hour + 5*time.Minute)
		w.until(w.now.Add(6 * time.Minute))
		if w.times() != want {
			t.Errorf("%q: %s", spec, w.times())
		}
	}
}

// TestCronJobAndTheClock sets the clock far ahead and back again.
func TestCronJobAndTheClock(t *testing.T) {
	w := newWorld(t, cronOf(t, "  schedule: '*/10 * * * *'\n  timeZone: UTC\n"), always(time.Minute, corev1.PodSucceeded))
	w.until(start.Add(15 * time.Minute))
	w.now = start.Add(1000 * time.Hour)
	w.until(w.now.Add(time.Minute))
	w.now = start.Add(15 * time.Minute)
	w.made = nil
	w.until(start.Add(35 * time.Minute))
	if w.times() != "20m0s 30m0s" {
		t.Errorf("after the clock was set back: %s", w.times())
	}
	// A small step over a time of the schedule does not start it twice.
	w.now, w.made = start.Add(40*time.Minute), nil
	w.decide()
	w.now = w.now.Add(-500 * time.Millisecond)
	w.until(start.Add(41 * time.Minute))
	if w.times() != "40m0s" {
		t.Errorf("after a small step: %s", w.times())
	}
}

// TestCronJobChanges changes a CronJob while a Job of it runs.
func TestCronJobChanges(t *testing.T) {
	w := newWorld(t, cronOf(t, "  schedule: '*/10 * * * *'\n  timeZone: UTC\n"), always(15*time.Minute, corev1.PodSucceeded))
	w.until(start.Add(11 * time.Minute))
	running := names(w.last.Want)
	w.w = workload(t, "batch/v1", "CronJob", "  schedule: '*/20 * * * *'\n  timeZone: UTC\n  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: other}]}}}}\n")
	w.decide()
	if names(w.last.Want) != running || w.last.Want[0].Spec.Containers[0].Image != "i" {
		t.Errorf("what ran was changed: %s, %s", running, names(w.last.Want))
	}
	w.until(start.Add(21 * time.Minute))
	if w.times() != "10m0s 20m0s" || w.last.Want[1].Spec.Containers[0].Image != "other" {
		t.Errorf("%s: %+v", w.times(), w.last.Want)
	}
}
