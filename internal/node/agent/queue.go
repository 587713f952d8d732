package agent

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/node/status"
)

// queued is a pod that waits for another one of its name, as that of a manifest does which
// has changed. It has no worker yet.
type queued struct {
	pod    *corev1.Pod
	before types.UID
	unread string // the source of that other one, which stays until this was read; empty if it ends
}

// newIn are those of a queue that were not in the last one. The caller holds mu.
func (a *Agent) newIn(queue []queued) []queued {
	last := a.queue
	a.queue = map[types.UID]bool{}
	for _, q := range queue {
		a.queue[q.pod.UID] = true
	}
	return slices.DeleteFunc(queue, func(q queued) bool { return last[q.pod.UID] })
}

// tellQueue tells of pods why they do not begin.
func (a *Agent) tellQueue(list []queued) {
	for _, q := range list {
		why := "the pod of this name with the UID " + string(q.before) + " has not ended; this one starts when nothing is left of it"
		if q.unread != "" {
			why += ". Nobody knows yet whether that one is to stay, as its source (" + q.unread + ") was not read: see to that source, or start the agent without it"
		}
		a.cfg.Event(q.pod, corev1.EventTypeNormal, "WaitingForPredecessor", why)
		a.cfg.Changed(q.pod, status.Blocked(q.pod, a.cfg.Node.IPs(), why, time.Now()))
	}
}
