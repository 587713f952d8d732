package foreground

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/node/podspec"
)

// patience is how long the removal of a pod is tried after its grace period, if it fails.
const patience = 15 * time.Second

// Stop ends and removes every pod of the run. Containers have their grace period until now
// is closed; nil is never.
func (r *Run) Stop(ctx context.Context, now <-chan struct{}) error {
	defer r.end()
	for _, p := range r.pods {
		p.leave()
	}
	select {
	case <-now:
		now = nil
		r.delete(0)
	default:
		r.delete(-1)
	}
	late := time.NewTimer(r.longest(now == nil))
	defer late.Stop()
	for {
		left := r.left()
		if len(left) == 0 {
			return nil
		}
		select {
		case <-r.changed:
		case <-now:
			now = nil
			r.delete(0)
			late.Reset(patience)
		case <-late.C:
			if err := troubles(left); err != nil {
				return err
			}
			late.Reset(patience) // it goes on, and nothing has failed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// delete has the agent end all pods, within so many seconds, or their own grace period.
func (r *Run) delete(grace int64) {
	at := metav1.NewTime(time.Now())
	var ending []*corev1.Pod
	for _, p := range r.pods {
		d := p.pod.DeepCopy()
		seconds := grace
		if grace < 0 {
			seconds = podspec.Grace(p.pod)
		}
		d.DeletionTimestamp, d.DeletionGracePeriodSeconds = &at, &seconds
		ending = append(ending, d)
	}
	r.agent.Set(ending)
}

// longest is when the last pod should be gone.
func (r *Run) longest(hurried bool) time.Duration {
	var grace int64
	for _, p := range r.pods {
		grace = max(grace, podspec.Grace(p.pod))
	}
	if hurried {
		grace = 0
	}
	return time.Duration(grace)*time.Second + patience
}

// left are the pods that are not gone.
func (r *Run) left() (out []*pod) {
	for _, p := range r.pods {
		if !p.isGone() {
			out = append(out, p)
		}
	}
	return out
}

// troubles are why pods are still there.
func troubles(left []*pod) error {
	var errs []error
	for _, p := range left {
		if why := p.lastTrouble(); why != "" {
			errs = append(errs, p.fail(fmt.Errorf("remove it: %s", why)))
		}
	}
	return errors.Join(errs...)
}

// Leave leaves the pods to themselves: nobody restarts or probes their containers any
// more. It waits for the last lines of logs.
func (r *Run) Leave() {
	r.end()
	for _, p := range r.pods {
		p.endLogs()
	}
}
