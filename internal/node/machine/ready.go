package machine

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/manifest"
	"fairlead.run/internal/node/status"
	"fairlead.run/internal/node/workload"
)

// Readiness is how far an object is.
type Readiness struct {
	Missing string `json:"missing,omitempty"` // empty if it is ready
	Failed  bool   `json:"failed,omitempty"`  // nothing that is waited for will help
}

// Readiness says whether what is asked for by an object is there: pods that are ready or
// have completed, of a Job its completions. Objects without pods are ready.
func (m *Machine) Readiness(kind string, k manifest.Key) (Readiness, error) {
	wanted, s := m.askedFor(kind, k)
	if m.read().Where(kind, k) == "" && len(wanted) == 0 { // pods of workloads are written nowhere
		return Readiness{}, fmt.Errorf("there is no %s %s: %w", kind, k, errdefs.ErrNotFound)
	}
	switch {
	case kind == "Job" && s.State == workload.Failed:
		return Readiness{fmt.Sprintf("job %s has failed: %s: %s", k, s.Reason, s.Message), true}, nil
	case kind == "Job" && s.State == workload.Complete:
		return Readiness{}, nil
	case kind == "Job":
		return Readiness{Missing: fmt.Sprintf("job %s has completed %d times of %d", k, s.Succeeded, s.Wanted)}, nil
	}
	_, owned := m.ownedPod(k) // another one takes the place of such a pod
	there := m.agent.Pods()
	for _, uid := range wanted {
		i := slices.IndexFunc(there, func(p *corev1.Pod) bool { return p.UID == uid })
		if i < 0 {
			return Readiness{Missing: fmt.Sprintf("a pod of %s %s is not there yet", kind, k)}, nil
		}
		p := there[i]
		switch {
		case p.DeletionTimestamp != nil: // it was taken away, and is asked for again
			return Readiness{Missing: fmt.Sprintf("pod %s/%s ends, and begins anew after that", p.Namespace, p.Name)}, nil
		case status.Ready(&p.Status) || p.Status.Phase == corev1.PodSucceeded:
		case kind == "Pod" && p.Status.Phase == corev1.PodFailed && !owned && m.agent.Finished(string(uid)):
			return Readiness{fmt.Sprintf("pod %s has failed: %s %s", k, p.Status.Reason, p.Status.Message), true}, nil
		default:
			why, _ := m.beside.whys.Load(uid)
			if why == nil {
				why = "it is " + string(p.Status.Phase)
			}
			return Readiness{Missing: fmt.Sprintf("pod %s/%s is not ready: %s", p.Namespace, p.Name, why)}, nil
		}
	}
	if kind == "StatefulSet" && s.Ready < s.Wanted {
		return Readiness{Missing: fmt.Sprintf("%d of %d pods of StatefulSet %s are ready", s.Ready, s.Wanted, k)}, nil
	}
	return Readiness{}, nil
}

// askedFor are the pods that are asked for by an object, and what is known of a workload.
func (m *Machine) askedFor(kind string, k manifest.Key) (pods []types.UID, s workload.Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, a := range m.last.pods {
		if a.isOf(kind, k) {
			pods = append(pods, uid)
		}
	}
	return pods, m.last.statuses[kind+" "+k.String()]
}

// settle waits until objects are known, and the agent was asked for their pods, so that who
// looks next sees nothing from before. A source that is broken keeps what it had; then it
// gives up.
func (m *Machine) settle(ctx context.Context, list []manifest.Single) {
	objects := objectsOf(list)
	known := func(settled *manifest.Objects) bool {
		return !slices.ContainsFunc(list, func(o manifest.Single) bool {
			return objects.Where(o.Kind, o.Key) != "" && settled.Where(o.Kind, o.Key) == ""
		})
	}
	m.await(ctx, func(settled *manifest.Objects) bool { return known(settled) && holds(settled, objects) })
}

// reread is how long a folder of manifests may take to be read again.
const reread = 10 * time.Second

// await waits until the agent was asked for the pods of such objects, and says whether that
// was so in time.
func (m *Machine) await(ctx context.Context, are func(*manifest.Objects) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, reread)
	defer cancel()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		m.mu.Lock()
		settled := m.last.objects
		m.mu.Unlock()
		if settled != nil && are(settled) {
			return true
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return false
		}
	}
}

// holds says whether all pods and workloads of some objects are among others.
func holds(all, some *manifest.Objects) bool {
	pod := func(p *manifest.Pod) bool {
		return slices.ContainsFunc(all.Pods, func(q *manifest.Pod) bool { return q.Key() == p.Key() && reflect.DeepEqual(q.Pod, p.Pod) })
	}
	work := func(w *manifest.Workload) bool {
		return slices.ContainsFunc(all.Workloads, func(v *manifest.Workload) bool {
			return v.Kind == w.Kind && v.Key() == w.Key() && reflect.DeepEqual([]any{v.Job, v.CronJob, v.StatefulSet}, []any{w.Job, w.CronJob, w.StatefulSet})
		})
	}
	for _, p := range some.Pods {
		if !pod(p) {
			return false
		}
	}
	for _, w := range some.Workloads {
		if !work(w) {
			return false
		}
	}
	return true
}
