package pod

import (
	"fmt"

	"fairlead.run/internal/errdefs"
)

// State is where a pod or a container is in its life. It is stored, never
// worked out from times or flags.
type State string

// The states. A pod that is Running is "ready" in the words of the CRI, and
// one that is Exited is "not ready".
const (
	// Creating is the intent: the record exists, the object may not.
	Creating State = "Creating"
	// Created is a container that is prepared and was never started.
	Created State = "Created"
	// Running is a pod with its namespaces and network, or a live process.
	Running State = "Running"
	// Exited is a pod that was stopped, or a process that ended.
	Exited State = "Exited"
	// Unknown is what could not be observed. The object may be alive.
	Unknown State = "Unknown"
)

// Event is what moves a State.
type Event string

// The events. Only Ended, Lost and Found happen without a caller asking.
const (
	// Prepared says that everything the object needs is in place.
	Prepared Event = "prepared"
	// Started says that the process runs, or that the pod accepts containers.
	Started Event = "started"
	// Ended says that the process ended, or that the pod was stopped.
	Ended Event = "ended"
	// Lost says that the object could not be observed.
	Lost Event = "lost"
	// Found says that a lost object was observed alive.
	Found Event = "found"
)

// next is the one table of transitions, for pods and containers alike.
var next = map[State]map[Event]State{
	Creating: {Prepared: Created},
	Created:  {Started: Running, Ended: Exited, Lost: Unknown},
	Running:  {Ended: Exited, Lost: Unknown},
	Unknown:  {Found: Running, Ended: Exited},
}

// On is the state after e, or an error that wraps errdefs.ErrPrecondition.
func (s State) On(e Event) (State, error) {
	if to, ok := next[s][e]; ok {
		return to, nil
	}
	return s, fmt.Errorf("%s while %s: %w", e, s, errdefs.ErrPrecondition)
}
