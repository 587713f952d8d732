// Package shutdown gives pods time to end before their machine is switched off
// (KEP-2000 and KEP-2712). It asks logind to wait, hears from it that the end is
// near, and ends pods in groups, the least important ones first.
//
// Which pod ends when, and with how much time, is a pure function (Order). Without
// systemd-logind nobody announces a shutdown, and pods end with the machine.
package shutdown

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/priority"
)

// What is told of pods that end with their node, and of the node.
const (
	Reason       = "Terminated"
	Message      = "Pod was terminated in response to imminent node shutdown."
	ReasonRefuse = "NodeShutdown"
	NodeMessage  = "node is shutting down" // of the node's condition Ready

	messageRefuse = "Pod was rejected as the node is shutting down."
)

// Settings are either two periods or one for each priority. None switches it all
// off.
type Settings struct {
	Period   time.Duration // in all
	Critical time.Duration // of that, for critical pods, after the others
	// ByPriority are levels in any order. A pod is of the highest level that is not
	// above its priority, or of the lowest.
	ByPriority []Level
}

// Level is how long pods of a priority may take to end.
type Level struct {
	Priority int32
	Period   time.Duration
}

// Levels are the settings as levels, the lowest first. There is none if it is
// switched off.
func (s Settings) Levels() ([]Level, error) {
	if len(s.ByPriority) > 0 {
		return s.byPriority()
	}
	switch {
	case s.Period < 0 || s.Critical < 0:
		return nil, fmt.Errorf("shutdown periods of %s and %s for critical pods: a time is not negative", s.Period, s.Critical)
	case s.Critical > s.Period:
		return nil, fmt.Errorf("shutdown period of %s for critical pods is a part of the whole %s; set no more than that", s.Critical, s.Period)
	case s.Period == 0:
		return nil, nil
	}
	return []Level{{0, s.Period - s.Critical}, {priority.SystemCritical, s.Critical}}, nil
}

func (s Settings) byPriority() ([]Level, error) {
	var errs []error
	if s.Period != 0 || s.Critical != 0 {
		errs = append(errs, errors.New("shutdown periods are set in all and by priority; set one of both"))
	}
	out := slices.SortedFunc(slices.Values(s.ByPriority), func(a, b Level) int { return cmp.Compare(a.Priority, b.Priority) })
	for i, l := range out {
		if l.Period < 0 {
			errs = append(errs, fmt.Errorf("shutdown period of %s for priority %d: a time is not negative", l.Period, l.Priority))
		}
		if i > 0 && out[i-1].Priority == l.Priority {
			errs = append(errs, fmt.Errorf("shutdown period for priority %d is set twice", l.Priority))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if total(out) == 0 {
		return nil, nil
	}
	return out, nil
}

func total(levels []Level) time.Duration {
	var out time.Duration
	for _, l := range levels {
		out += l.Period
	}
	return out
}

// Ending is a pod that has to end, and how long it may take.
type Ending struct {
	Pod   *corev1.Pod
	Grace time.Duration
}

// Group are pods that end at the same time. The next group waits for them, no
// longer than the period.
type Group struct {
	Level
	Pods []Ending
}

// Order has the pods in groups, the first one to end first. A level without pods is
// no group. A critical pod whose priority nobody has set, as it comes from the
// node's own files, counts with the critical ones.
func Order(pods []*corev1.Pod, levels []Level) []Group {
	groups := make([]Group, len(levels))
	for i, l := range levels {
		groups[i].Level = l
	}
	for _, pod := range pods {
		at := 0
		for i, l := range levels {
			if l.Priority <= rank(pod) {
				at = i
			}
		}
		own := time.Duration(podspec.Grace(pod)) * time.Second
		groups[at].Pods = append(groups[at].Pods, Ending{pod, min(own, levels[at].Period)})
	}
	groups = slices.DeleteFunc(groups, func(g Group) bool { return len(g.Pods) == 0 })
	for _, g := range groups {
		slices.SortFunc(g.Pods, func(a, b Ending) int { return strings.Compare(string(a.Pod.UID), string(b.Pod.UID)) })
	}
	return groups
}

func rank(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil && priority.Critical(pod) {
		return max(priority.Of(pod), priority.SystemCritical)
	}
	return priority.Of(pod)
}

func refusal() error {
	return &capacity.Refusal{Reason: ReasonRefuse, Message: messageRefuse}
}
