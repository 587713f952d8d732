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
)

// Parallel is the scenario of so many clients at once.
func Parallel(clients int) string { return fmt.Sprintf("%d in parallel", clients) }

// Idle is the scenario of so many pods that do nothing.
func Idle(pods int) string { return fmt.Sprintf("idle, %d pods", pods) }

// Between is the scenario of more and more pods that do nothing.
func Between(few, many int) string { return fmt.Sprintf("idle, from %d to %d pods", few, many) }

// Metrics that are not the time of a call.
const (
	Rate   = "pods per second"
	Memory = "memory beside the workload"
	CPU    = "CPU at rest"
	PerPod = "memory per idle pod"
)
