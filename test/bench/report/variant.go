package report

import (
	"fmt"
	"strings"
)

// The words that variants are made of.
const (
	Containerd = "containerd"
	Fairlead   = "fairlead"
	CNI        = "bridge+portmap"
	Builtin    = "built-in"
)

// Variant names a daemon with a handler and a network.
func Variant(daemon, handler, network string) string {
	return strings.Join([]string{daemon, handler, network}, ", ")
}

// The scenarios that have no parameter.
const (
	Serial    = "serial"
	Sustained = "sustained, 16 in parallel"
	GVisor    = "gVisor, pods of two containers"
)

// Parallel is the scenario of so many clients at once.
func Parallel(clients int) string { return fmt.Sprintf("%d in parallel", clients) }

// Idle is the scenario of so many pods that do nothing.
func Idle(pods int) string { return fmt.Sprintf("idle, %d pods", pods) }

// Crowd is the scenario of calls that only look among so many containers.
func Crowd(containers int) string { return fmt.Sprintf("%d containers", containers) }

// Between is the scenario of more and more pods that do nothing.
func Between(few, many int) string { return fmt.Sprintf("idle, from %d to %d pods", few, many) }

// RestartPods is how many pods a daemon has that is started again, in the promise.
const RestartPods = 200

// Restart is the scenario of a daemon that is killed and started again.
func Restart(pods int) string { return fmt.Sprintf("restart, %d pods", pods) }

// Metrics that are not the time of a call.
const (
	Rate   = "pods per second"
	Memory = "memory beside the workload"
	CPU    = "CPU at rest"
	PerPod = "memory per idle pod"
	// Answer is from the start of the daemon's process until its first answer.
	Answer = "until the first answer"
	// Observed is from the same start until it has observed all pods.
	Observed = "until all pods are observed"
)
