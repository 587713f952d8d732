package workload

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/manifest"
)

// reasons are those of what was told, with the kinds that it is about.
func (w *world) reasons() string {
	var out []string
	for _, e := range w.told {
		text := e.Kind + " " + e.Reason
		if e.Type == corev1.EventTypeWarning {
			text += "!"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// TestNews tells once of each thing.
func TestNews(t *testing.T) {
	const every10 = "  schedule: '*/10 * * * *'\n  timeZone: UTC\n"
	short, failing, long := always(time.Minute, corev1.PodSucceeded), always(time.Minute, corev1.PodFailed), always(11*time.Minute, corev1.PodSucceeded)
	for _, tt := range []struct {
		name string
		w    *manifest.Workload
		runs func(string, int) (time.Duration, corev1.PodPhase)
		want string
	}{
		{"a Job", jobOf(t, ""), short, "Job Completed"},
		{"a Job that fails", jobOf(t, "  backoffLimit: 1\n"), failing, "Job BackoffLimitExceeded!"},
		{"a Job that takes too long", jobOf(t, "  activeDeadlineSeconds: 60\n"), long, "Job DeadlineExceeded!"},
		{"a Job that waits", jobOf(t, "  suspend: true\n"), short, "Job Suspended"},
		{"a CronJob", cronOf(t, every10), short, "CronJob SuccessfulCreate, Job Completed, CronJob SawCompletedJob, CronJob SuccessfulCreate"},
		{"a CronJob without a history", cronOf(t, every10+"  successfulJobsHistoryLimit: 0\n"), short, "CronJob SuccessfulCreate, CronJob SawCompletedJob, CronJob SuccessfulDelete, CronJob SuccessfulCreate"},
		{"a CronJob whose Job fails", cronOf(t, every10), failing, "CronJob SuccessfulCreate, Job BackoffLimitExceeded!, CronJob SawCompletedJob, CronJob SuccessfulCreate"},
		{"a CronJob that waits", cronOf(t, every10+"  concurrencyPolicy: Forbid\n"), long, "CronJob SuccessfulCreate, CronJob JobAlreadyActive"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.w, tt.runs)
			w.until(start.Add(20 * time.Minute))
			if got := w.reasons(); got != tt.want {
				t.Errorf("it is told\n%s, and was to be\n%s", got, tt.want)
			}
			for _, e := range w.told {
				if e.Message == "" || e.Namespace != "default" || !strings.HasPrefix(e.Name, "w") {
					t.Errorf("%+v", e)
				}
			}
		})
	}
}

// TestMissed tells of a start for which it was too late, once.
func TestMissed(t *testing.T) {
	w := newWorld(t, cronOf(t, "  schedule: '0 * * * *'\n  timeZone: UTC\n  startingDeadlineSeconds: 60\n"), always(time.Minute, corev1.PodSucceeded))
	w.decide()
	w.now = start.Add(90 * time.Minute)
	w.decide()
	w.decide()
	if got := w.reasons(); got != "CronJob MissSchedule!" || !strings.Contains(w.told[0].Message, "2026-05-05T13:00:00Z") {
		t.Errorf("%s: %+v", got, w.told)
	}
}
