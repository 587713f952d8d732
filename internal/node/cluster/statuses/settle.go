package statuses

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/node/cluster/pace"
)

// requestPatience is how long one request may take.
const requestPatience = 10 * time.Second

// settle writes for one pod until there is nothing to write.
func (w *Writer) settle(ctx context.Context, e *entry) {
	var p pace.Pace
	for warned := false; ; {
		what := w.turn(e)
		if what == idle {
			return
		}
		if what == write {
			w.gather(ctx, e)
		}
		err := w.do(ctx, e, what)
		switch {
		case ctx.Err() != nil:
			w.mu.Lock()
			e.busy = false
			w.mu.Unlock()
			return
		case err == nil:
			if what != read { // which succeeds between conflicts
				p.Reset()
			}
			continue
		case apierrors.IsConflict(err) && !warned: // what is known is old: read it, and at once
			warned = true
			continue
		}
		if !warned {
			w.log.Warn("cannot tell the API server of a pod, and try again", "namespace", e.namespace, "pod", e.name, "uid", e.uid, "error", err)
			warned = true
		}
		pace.Sleep(ctx, p.After(err))
	}
}

// turn is the next step, or the end of this worker: the same lock is held by those
// who give it more to do.
func (w *Writer) turn(e *entry) step {
	w.mu.Lock()
	defer w.mu.Unlock()
	what := idle
	if w.pods[e.uid] == e {
		what = e.next()
	}
	if what == idle {
		e.busy = false
	}
	return what
}

// gatherTime is how long a pod that begins may go on before that is written.
const gatherTime = 300 * time.Millisecond

// gather waits a moment for a pod that is Pending on both sides: most pods run before it
// is over, and then one write tells all that three would have.
func (w *Writer) gather(ctx context.Context, e *entry) {
	over := time.NewTimer(gatherTime)
	defer over.Stop()
	for w.begins(e) {
		select {
		case <-ctx.Done():
			return
		case <-over.C:
			return
		case <-e.told:
		}
	}
}

func (w *Writer) begins(e *entry) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pods[e.uid] == e && !e.gone && e.wants != nil && e.wants.Phase == corev1.PodPending &&
		e.api != nil && e.api.DeletionTimestamp == nil && e.api.Status.Phase == corev1.PodPending
}

func (w *Writer) do(ctx context.Context, e *entry, what step) error {
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	var err error
	switch what {
	case read:
		err = w.read(ctx, e)
	case write:
		err = w.write(ctx, e)
	case remove:
		err = w.remove(ctx, e)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case apierrors.IsNotFound(err):
		w.forget(e)
		return nil
	case apierrors.IsConflict(err):
		e.api = nil
	}
	return err
}

func (w *Writer) forget(e *entry) {
	if w.pods[e.uid] == e {
		delete(w.pods, e.uid)
	}
}

func (w *Writer) read(ctx context.Context, e *entry) error {
	got := &corev1.Pod{}
	err := w.client.Get().Namespace(e.namespace).Resource(cluster.Pods).Name(e.name).MaxRetries(0).Do(ctx).Into(got)
	if err != nil {
		return fmt.Errorf("get pod %s/%s: %w", e.namespace, e.name, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if got.UID != e.uid { // another one of that name
		w.forget(e)
		return nil
	}
	e.api = newer(e.api, got)
	return nil
}

func (w *Writer) write(ctx context.Context, e *entry) error {
	w.mu.Lock()
	wants, has := e.wants, e.api
	w.mu.Unlock()
	if has == nil {
		return nil
	}
	change, err := patch(known{e.uid, has.ResourceVersion}, &has.Status, wants)
	if err != nil {
		return err
	}
	got := has
	if change != nil {
		got = &corev1.Pod{}
		err = w.client.Patch(types.StrategicMergePatchType).Namespace(e.namespace).Resource(cluster.Pods).Name(e.name).
			SubResource("status").Body(change).MaxRetries(0).Do(ctx).Into(got)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		e.refused = wants
		w.log.Error("the API server refuses the status of a pod; the next one is tried", "namespace", e.namespace, "pod", e.name, "uid", e.uid, "error", err)
		w.refused(has, err)
		return nil
	}
	if apierrors.IsForbidden(err) && e.barred != wants {
		e.barred = wants
		w.refused(has, err)
	}
	if err != nil {
		return fmt.Errorf("patch the status of pod %s/%s: %w", e.namespace, e.name, err)
	}
	e.api = newer(e.api, got)
	e.sent, e.echo = wants, &got.Status
	return nil
}

// remove ends the object of a pod. It must be the one that was seen: a finalizer,
// say, that somebody has put on it since is a reason to look again.
func (w *Writer) remove(ctx context.Context, e *entry) error {
	w.mu.Lock()
	has := e.api
	w.mu.Unlock()
	if has == nil {
		return nil
	}
	options := &metav1.DeleteOptions{
		TypeMeta:           metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"},
		GracePeriodSeconds: new(int64(0)),
		Preconditions:      &metav1.Preconditions{UID: &e.uid, ResourceVersion: &has.ResourceVersion},
	}
	err := w.client.Delete().Namespace(e.namespace).Resource(cluster.Pods).Name(e.name).Body(options).MaxRetries(0).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("delete pod %s/%s: %w", e.namespace, e.name, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	e.deleted = true
	return nil
}
