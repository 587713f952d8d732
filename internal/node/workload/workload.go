package workload

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/manifest"
	"fairlead.run/internal/node/manifest/template"
)

// Seen is what is known of a pod. A pod is seen from when it is handed to an agent
// until the agent has removed it, also before it runs and after it has ended.
type Seen struct {
	Namespace string
	Name      string
	Phase     corev1.PodPhase
	Ready     bool
	Restarts  int       // of its containers, in all
	Ended     time.Time // when it reached Succeeded or Failed
	// Status is all of it, of which a Job that has a podFailurePolicy looks at more.
	Status corev1.PodStatus
}

func (s Seen) ended() bool { return s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed }

// Record is what has to be known of a workload when the agent is started anew, or
// the machine. The zero Record is that of a workload which is new.
type Record struct {
	From string      `json:"from,omitempty"` // the kind of source that the workload is of
	Job  *JobRecord  `json:"job,omitempty"`
	Cron *CronRecord `json:"cron,omitempty"`
}

// State is how far a workload is.
type State string

// States of workloads. A Job that is Complete or Failed stays so.
const (
	Running   State = "Running"
	Suspended State = "Suspended"
	Complete  State = "Complete"
	Failed    State = "Failed"
)

// Status is what a person wants to know.
type Status struct {
	State           State
	Reason, Message string // why it is Failed, as Kubernetes says it
	Wanted          int    // pods that are to run, or completions
	Active, Ready   int    // pods
	Succeeded       int    // pods of a Job; Jobs of a CronJob
	Failed          int
	Started, Ended  time.Time
	Last, Next      time.Time // of a CronJob's schedule
}

// Decision is what follows for one workload.
type Decision struct {
	Want []*manifest.Pod
	// Keep are pods that have ended, and stay with their status and logs. They must
	// not be started again.
	Keep   []*manifest.Pod
	Again  time.Time // zero if only what happens to pods changes anything
	Record Record
	Status Status
}

// Sooner is the earlier one of two times; zero is never.
func Sooner(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// Pods is what is known of pods, by namespace and name.
type Pods map[manifest.Key]Seen

// Known makes Pods of a list.
func Known(list []Seen) Pods {
	out := make(Pods, len(list))
	for _, s := range list {
		out[manifest.Key{Namespace: s.Namespace, Name: s.Name}] = s
	}
	return out
}

// Next decides about one workload.
func Next(w *manifest.Workload, r Record, pods Pods, now time.Time) Decision {
	now = now.Round(0).UTC() // as it is when it was stored
	var d Decision
	var made wanted
	switch {
	case w.Job != nil:
		j := newJob(w.Job, r.Job, pods)
		made = j.next(now)
		d = Decision{Again: j.again, Record: Record{Job: &j.record}, Status: j.status()}
	case w.CronJob != nil:
		d, made = cronNext(w.CronJob, r.Cron, pods, now)
	case w.StatefulSet != nil:
		d, made = statefulNext(w, pods)
	}
	d.Want, d.Keep = owned(w, made.run), owned(w, made.keep)
	d.Record.From = w.From
	return d
}

func owned(w *manifest.Workload, pods []*corev1.Pod) []*manifest.Pod {
	var out []*manifest.Pod
	for _, p := range pods {
		out = append(out, &manifest.Pod{Pod: p, Origin: w.Origin, Source: w.Source, From: w.From, Owner: w.Key().Name, OwnerKind: w.Kind})
	}
	return out
}

// All is what follows for all workloads of a set.
type All struct {
	Want     []*manifest.Pod
	Keep     []*manifest.Pod
	Again    time.Time
	Records  map[string]Record // by kind, namespace and name
	Statuses map[string]Status
}

// Input is what Plan goes by.
type Input struct {
	Workloads []*manifest.Workload
	Unread    []string          // kinds of sources that were not read yet
	Records   map[string]Record // as the last All had them
	Pods      Pods
	Now       time.Time
}

// Plan decides about all workloads of a set. Records of workloads that are gone go,
// too, unless they are of a source that was not read yet.
func Plan(in Input) All {
	out := All{Records: map[string]Record{}, Statuses: map[string]Status{}}
	for _, w := range in.Workloads {
		id := w.Kind + " " + w.Key().String()
		d := Next(w, in.Records[id], in.Pods, in.Now)
		out.Want, out.Keep = append(out.Want, d.Want...), append(out.Keep, d.Keep...)
		out.Records[id], out.Statuses[id] = d.Record, d.Status
		out.Again = Sooner(out.Again, d.Again)
	}
	for id, r := range in.Records {
		if _, there := out.Records[id]; !there && slices.Contains(in.Unread, r.From) {
			out.Records[id] = r
		}
	}
	return out
}

// statefulNext wants the pods in their order: each when those before are ready,
// unless they may start at once.
func statefulNext(w *manifest.Workload, pods Pods) (Decision, wanted) {
	set := w.StatefulSet
	all := template.StatefulSet(set)
	d := Decision{Status: Status{State: Running, Wanted: len(all)}}
	var want wanted
	ready := true // all pods so far
	for _, p := range all {
		if slices.Contains(w.Taken, p.Name) {
			continue // another pod has its name
		}
		s, seen := pods[manifest.Key{Namespace: p.Namespace, Name: p.Name}]
		if ready || seen || set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement {
			want.run = append(want.run, p)
		}
		if seen {
			d.Status.Active++
		}
		if seen && s.Ready {
			d.Status.Ready++
		}
		ready = ready && s.Ready
	}
	return d, want
}
