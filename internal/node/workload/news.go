package workload

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/manifest"
)

// Event is something to tell of a Job or CronJob, with the reasons of Kubernetes'
// controllers.
type Event struct {
	Kind, Namespace, Name string // of the object that it is about
	Type, Reason, Message string
}

// News is what there is to tell of a workload whose record has changed.
func News(w *manifest.Workload, before, after Record) []Event {
	switch {
	case w.Job != nil && after.Job != nil:
		return jobNews(w.Key(), before.Job, after.Job)
	case w.CronJob != nil && after.Cron != nil:
		return cronNews(w.CronJob, before.Cron, after.Cron)
	}
	return nil
}

func jobNews(key manifest.Key, before, after *JobRecord) []Event {
	if before == nil || before.Spec != after.Spec {
		before = &JobRecord{}
	}
	e := Event{Kind: "Job", Namespace: key.Namespace, Name: key.Name, Type: corev1.EventTypeNormal}
	switch {
	case before.State == after.State:
		return nil
	case after.State == Complete:
		e.Reason, e.Message = "Completed", "All of it is done"
	case after.State == Failed:
		e.Type, e.Reason, e.Message = corev1.EventTypeWarning, after.Reason, "The Job has failed: "+after.Message
	case after.State == Suspended:
		e.Reason, e.Message = "Suspended", "No pods run until spec.suspend is taken away"
	case before.State == Suspended:
		e.Reason, e.Message = "Resumed", "Pods run again"
	default:
		return nil
	}
	return []Event{e}
}

func cronNews(c *batchv1.CronJob, before, after *CronRecord) (out []Event) {
	if before == nil {
		before = &CronRecord{}
	}
	add := func(kind, reason, format string, args ...any) {
		out = append(out, Event{"CronJob", c.Namespace, c.Name, kind, reason, fmt.Sprintf(format, args...)})
	}
	for _, r := range after.Runs {
		name, old := r.name(c), &JobRecord{}
		if i := slices.IndexFunc(before.Runs, func(b Run) bool { return b.At.Equal(r.At) }); i >= 0 {
			old = &before.Runs[i].Job
		} else {
			add(corev1.EventTypeNormal, "SuccessfulCreate", "Created Job %s", name)
		}
		out = append(out, jobNews(manifest.Key{Namespace: c.Namespace, Name: name}, old, &r.Job)...)
		if r.over() && old.State != r.Job.State {
			add(corev1.EventTypeNormal, "SawCompletedJob", "Job %s has ended: %s", name, r.Job.State)
		}
	}
	for _, r := range before.Runs {
		if !slices.ContainsFunc(after.Runs, func(a Run) bool { return a.At.Equal(r.At) }) {
			if !r.over() && c.Spec.ConcurrencyPolicy != batchv1.ReplaceConcurrent {
				add(corev1.EventTypeNormal, "SawCompletedJob", "Job %s has ended, and none like it is kept (spec.successfulJobsHistoryLimit, spec.failedJobsHistoryLimit)", r.name(c))
			}
			add(corev1.EventTypeNormal, "SuccessfulDelete", "Deleted Job %s", r.name(c))
		}
	}
	if !after.Missed.Equal(before.Missed) {
		add(corev1.EventTypeWarning, "MissSchedule", "No Job was started for %s, as it was too late for that (spec.startingDeadlineSeconds)", after.Missed.Format(time.RFC3339))
	}
	if !after.Held.Equal(before.Held) {
		add(corev1.EventTypeNormal, "JobAlreadyActive", "The Job for %s waits until the one before it has ended (spec.concurrencyPolicy: Forbid)", after.Held.Format(time.RFC3339))
	}
	return out
}
