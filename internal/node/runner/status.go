package runner

import (
	"fairlead.run/internal/node/logs"
)

// Phase is where a pod stands.
type Phase string

// The phases. Pending goes to Running, and Running to one of the others.
const (
	Pending   Phase = "Pending"
	Running   Phase = "Running"
	Succeeded Phase = "Succeeded"
	Failed    Phase = "Failed"
)

// Status is a pod as its runner sees it.
type Status struct {
	Namespace, Name string
	ID              string // of the sandbox; empty before there is one
	Class, Handler  string
	Addresses       []string
	Phase           Phase
	Ready, Total    int // containers that are ready, of all
	Restarts        int
	Message         string // why it failed, or what it waits for
}

// Observer is told what happens. Calls come from several goroutines.
type Observer interface {
	// Note tells what a person may want to know.
	Note(text string)
	// Changed tells a pod's new status.
	Changed(Status)
	// Line tells a line of a container's output.
	Line(namespace, pod, container string, l logs.Line)
}
