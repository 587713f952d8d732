package machine

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/node/manifest"
	"fairlead.run/internal/node/status"
	"fairlead.run/internal/node/workload"
)

// How long a pod of a workload that has ended stays before another one takes its place:
// as a DaemonSet's do, from a second on, doubling each time. It is forgotten how often
// that was once a pod has run for a while.
const (
	firstAgain  = time.Second
	lastAgain   = 5 * time.Minute
	forgetAgain = 10 * time.Minute
	// notFinal is when to look again whether an end is for good.
	notFinal = 10 * time.Second
)

// replaces are the kinds whose pods run for ever, with the reasons of the events that
// their controllers tell of a pod that has failed, and of one that has succeeded. Jobs
// count their pods themselves (package workload).
var replaces = map[string]struct{ failed, succeeded string }{
	"Deployment":  {"SuccessfulCreate", "SuccessfulCreate"},
	"ReplicaSet":  {"SuccessfulCreate", "SuccessfulCreate"},
	"DaemonSet":   {"FailedDaemonPod", "SucceededDaemonPod"},
	"StatefulSet": {"RecreatingFailedPod", "RecreatingTerminatedPod"},
}

// replacements are the pods that were replaced, or are to be. The new pod has the UID of
// the old one, of which nothing is left then. It is used by keep alone.
type replacements map[types.UID]*replacement

type replacement struct {
	times int
	ended time.Time // zero while it has not
	began time.Time // the one that runs now
	goes  bool
}

// end is how far the end of a pod is.
type end int

const (
	runs  end = iota
	over      // it may run again by itself, as one for which there was no room
	final     // it stays as it is
)

// stays says whether a pod is to be there now. One that has ended is to go after a
// pause, and comes again when nothing of it is left; next is when to ask anew, if that is
// not zero, and goes says that it is to go from now on.
func (all replacements) stays(uid types.UID, how end, now time.Time) (stays, goes bool, next time.Time) {
	ended := how != runs
	r := all[uid]
	switch {
	case !ended && r == nil:
		return true, false, time.Time{}
	case !ended:
		if r.goes || !r.ended.IsZero() {
			r.goes, r.ended, r.began = false, time.Time{}, now
		}
		return true, false, time.Time{}
	case r == nil:
		r = &replacement{}
		all[uid] = r
	}
	if r.goes {
		return false, false, now.Add(firstAgain) // the agent may have it a moment longer than it tells
	}
	if r.ended.IsZero() {
		if r.ended = now; now.Sub(r.began) > forgetAgain {
			r.times = 0
		}
	}
	pause := lastAgain
	if r.times < 10 {
		pause = min(firstAgain<<r.times, lastAgain)
	}
	if at := r.ended.Add(pause); now.Before(at) {
		return true, false, at
	}
	if how != final {
		return true, false, now.Add(notFinal)
	}
	r.goes = true
	r.times++
	return false, true, now.Add(firstAgain)
}

// replaced leaves out pods of workloads that are to make place for others.
func (m *Machine) replaced(pods []*manifest.Pod, now time.Time) (out []*corev1.Pod, next time.Time) {
	phases, ends := map[types.UID]corev1.PodPhase{}, map[types.UID]end{}
	for _, p := range m.agent.Pods() {
		phases[p.UID] = p.Status.Phase
		switch {
		case !status.Terminal(p.Status.Phase):
		case m.agent.Finished(string(p.UID)):
			ends[p.UID] = final
		default:
			ends[p.UID] = over
		}
	}
	wanted := map[types.UID]bool{}
	for _, p := range pods {
		wanted[p.UID] = true
		reasons, may := replaces[p.OwnerKind]
		if !may {
			out = append(out, p.Pod)
			continue
		}
		stays, goes, at := m.beside.again.stays(p.UID, ends[p.UID], now)
		if stays {
			out = append(out, p.Pod)
		}
		next = workload.Sooner(next, at)
		switch owner := m.reference(p.OwnerKind, manifest.Key{Namespace: p.Namespace, Name: p.Owner}); {
		case goes && phases[p.UID] == corev1.PodFailed:
			m.events.add(owner, corev1.EventTypeWarning, reasons.failed, fmt.Sprintf("Pod %s has failed, and another one takes its place", p.Name))
		case goes:
			m.events.add(owner, corev1.EventTypeNormal, reasons.succeeded, fmt.Sprintf("Pod %s has ended, and another one takes its place", p.Name))
		}
	}
	for uid := range m.beside.again {
		if !wanted[uid] {
			delete(m.beside.again, uid)
		}
	}
	return out, next
}

// reference is an object of the manifests, as events are about it.
func (m *Machine) reference(kind string, key manifest.Key) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: versions[kind].String(), Kind: kind, Namespace: key.Namespace, Name: key.Name}
}
