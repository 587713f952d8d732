package containerruntime

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	gardener "fairlead.run/api/gardener/v1alpha1"
)

// problem is an error with a code that programs know. One of CodeConfiguration is not
// tried again before somebody changes something.
type problem struct {
	error
	code gardener.ErrorCode
}

func (p problem) Unwrap() error { return p.error }

func misconfigured(err error) error { return problem{err, gardener.CodeConfiguration} }

func codesOf(err error) []gardener.ErrorCode {
	var p problem
	if errors.As(err, &p) {
		return []gardener.ErrorCode{p.code}
	}
	return nil
}

func permanent(err error) bool {
	var p problem
	return errors.As(err, &p) && p.code == gardener.CodeConfiguration
}

// outcome is how far a verb has come.
type outcome struct {
	done     bool
	progress int32
	says     string

	conditions []gardener.Condition
	status     *runtime.RawExtension // what the type says of itself
	state      *runtime.RawExtension // what who goes on elsewhere has to know
	later      time.Duration         // when to look again at what is done; zero is never
	soon       bool                  // what is waited for ends within seconds, and nobody tells of it
}

func sameStatus(a, b *gardener.ContainerRuntimeStatus) bool {
	return equality.Semantic.DeepEqual(a, b)
}

// ending is how a verb went: an outcome, or why there is none.
type ending struct {
	outcome
	as  gardener.OperationType
	err error
}

// record writes into a status how an operation stands.
func record(c *gardener.ContainerRuntime, o ending, now time.Time) {
	last, err := c.Status.LastOperation, o.err
	op := &gardener.LastOperation{Type: o.as, State: gardener.StateProcessing, Progress: o.progress, Description: o.says}
	switch {
	case err != nil:
		op.State, op.Description = gardener.StateError, err.Error()
		c.Status.LastError = &gardener.LastError{Description: err.Error(), Codes: codesOf(err)}
		c.Status.ObservedGeneration = c.Generation
	case o.done:
		op.State, op.Progress = gardener.StateSucceeded, 100
		c.Status.LastError, c.Status.ObservedGeneration = nil, c.Generation
	default:
		// An error stays until it is overcome, as whoever waits looks for it.
	}
	same := last != nil && last.Type == op.Type && last.State == op.State && last.Progress == op.Progress && last.Description == op.Description
	if same && !last.LastUpdateTime.Time.Before(ordered(c)) {
		op.LastUpdateTime = last.LastUpdateTime
	} else {
		op.LastUpdateTime = metav1.NewTime(stamp(c, now))
	}
	if e := c.Status.LastError; e != nil {
		e.LastUpdateTime = &op.LastUpdateTime
	}
	c.Status.LastOperation = op
}

// ordered is when the last order was given; zero if nobody says.
func ordered(c *gardener.ContainerRuntime) time.Time {
	at, err := time.Parse(time.RFC3339Nano, c.Annotations[gardener.AnnotationTimestamp])
	if err != nil {
		return time.Time{}
	}
	return at
}

// skew is how far the clock of who orders may be ahead of ours.
const skew = 5 * time.Minute

// stamp is the time of an answer. Times of objects are whole seconds, and an answer
// that seems to be from before its order, as by a clock that is slow, is one to another.
func stamp(c *gardener.ContainerRuntime, now time.Time) time.Time {
	now = now.Truncate(time.Second)
	if at := ordered(c); now.Before(at) && at.Sub(now) < skew {
		return at.Add(time.Second - 1).Truncate(time.Second)
	}
	return now
}

// condition sets one of a status, and keeps its time of transition.
func condition(c *gardener.ContainerRuntime, with gardener.Condition, now time.Time) {
	at := metav1.NewTime(now.Truncate(time.Second))
	with.LastTransitionTime, with.LastUpdateTime = at, at
	for i := range c.Status.Conditions {
		had := &c.Status.Conditions[i]
		if had.Type != with.Type {
			continue
		}
		if had.Status == with.Status {
			with.LastTransitionTime = had.LastTransitionTime
			if had.Reason == with.Reason && had.Message == with.Message {
				with.LastUpdateTime = had.LastUpdateTime
			}
		}
		*had = with
		return
	}
	c.Status.Conditions = append(c.Status.Conditions, with)
}
