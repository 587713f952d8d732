package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Input is what a plan is made from. Nothing of it is changed.
type Input struct {
	Pod *corev1.Pod
	Observed
	Now time.Time
	// Began is when the pod was first seen here, for activeDeadlineSeconds; zero
	// if it has no deadline.
	Began time.Time
	// Ran says that a container of a pod with the policy Never was started, by whichever agent,
	// though the runtime may have nothing of it.
	Ran bool
	// Ending is why the whole pod is to end: it was deleted, or evicted. Empty if
	// it is not.
	Ending string
	// Hash is of what a container is made from and cannot change in place; nil if
	// nothing changes. A container with another one than it was made with is made anew.
	Hash func(*corev1.Container) string
	// LongestPause is between two attempts at a container that crashes; 0 is LongestPause.
	LongestPause time.Duration
}

// Observed is what a runtime has of a pod.
type Observed struct {
	Sandbox *Sandbox // the latest; nil if there is none
	// Containers are the latest attempts, by name.
	Containers map[string]*Container
}

// Sandbox is one that is there.
type Sandbox struct {
	ID      string
	Attempt uint32
	Ready   bool
}

// State is what a container does.
type State string

// The states of the CRI.
const (
	Created State = "Created"
	Running State = "Running"
	Exited  State = "Exited"
	Unknown State = "Unknown"
)

// Container is an attempt at a container.
type Container struct {
	ID, Sandbox string // of the sandbox that it is in, which may be gone
	Attempt     uint32
	State       State
	ExitCode    int32
	Finished    time.Time // zero if it has not
	// Crashes is how many attempts ended in a row, this one included; see Backoff.
	Crashes int
	Hash    string // that it was made with; empty if nobody knows
	// Refused says that the runtime has not started it, though it was asked to.
	Refused bool
	// Resources that it runs with, if they can be told; else nil.
	Resources *corev1.ResourceRequirements
	// Starting says that its postStart hook has not ended. It is not up before.
	Starting bool
	// Up says that its startup probe has passed, or that it has none.
	Up bool
	// Ready says that it is up, and its readiness probe passes, or it has none.
	Ready bool
	Illness
	// Warned says that its preStop hook was begun.
	Warned bool
}

// Illness is why a container is to end, or has ended, other than by itself or with its pod.
type Illness struct {
	// Sick is why a probe, or its postStart hook, wants it ended; empty if none does.
	Sick string
	// Probed says that it is for a probe. It is known of a container that has ended, too.
	Probed bool
	// Grace is how long it has to end if it is sick, in seconds; nil for as long as
	// the pod allows.
	Grace *int64
}
