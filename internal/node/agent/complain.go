package agent

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/node/errtext"
	"fairlead.run/internal/node/view"
)

// told is an error of which an event tells already.
type told struct{ error }

// Unwrap is the error itself.
func (t *told) Unwrap() error { return t.error }

// told has an event tell what has failed.
func (w *worker) told(reason string, err error) error {
	if !view.CutOff(err) {
		w.event(corev1.EventTypeWarning, reason, w.wording(err)+hostpath.Advice(err))
	}
	return &told{err}
}

// wording is how people are told of an error, which has not the ids and times of this attempt:
// these are in the log.
func (w *worker) wording(err error) string {
	return w.reworded(errtext.Full(err))
}

// reworded is wording of what an error says.
func (w *worker) reworded(full string) string {
	text := errtext.Stable(full)
	if full != text {
		w.a.cfg.Log.Info("what a pod needs has failed; its events and its status leave out what is another at each attempt", "pod", w.name, "error", full)
	}
	return text
}

// complain tells what keeps a pod from being as it should be, if nothing has yet. That
// the runtime is away is a condition of the node, and no event of each of its pods; what
// was cut off has not failed. Counting equal events is for who writes them.
func (w *worker) complain(err error) {
	known := (*told)(nil)
	if errors.As(err, &known) || view.CutOff(err) || status.Code(err) == codes.Unavailable {
		return
	}
	text := w.wording(err) + hostpath.Advice(err)
	if w.pod.Name != "" {
		w.event(corev1.EventTypeWarning, "FailedSync", text)
	}
	if !w.leftOver() || w.left == text {
		return
	}
	w.left = text // nobody may have the pod any more whose event that is
	w.a.warn(LeftoverNotRemoved, fmt.Sprintf("What an agent before this one has left of pod %s cannot be removed, which is tried again; until then it takes room on the node: %s", w.called(), text))
}

// Reasons of what is wrong with a node.
const (
	LeftoverNotRemoved = "LeftoverNotRemoved"
	LeftoverNotFound   = "LeftoverNotFound"
)

// called is how people find the pod.
func (w *worker) called() string {
	if w.pod.Name == "" {
		return string(w.uid) // there is a folder of that name, and nothing else
	}
	return w.name + " (" + string(w.uid) + ")"
}

// warn tells of what is wrong with the node.
func (a *Agent) warn(reason, message string) {
	if to, ok := a.cfg.Reporter.(Warner); ok {
		to.Warn(reason, message)
		return
	}
	a.cfg.Log.Warn("something is wrong with the node", "reason", reason, "message", message)
}
