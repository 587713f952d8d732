// Package agent keeps the pods of a node as they are wanted, through any CRI
// endpoint: it starts them, restarts what ended, ends what is not wanted any more, and
// says how they are.
//
// Every pod has a goroutine of its own, so that none waits for another. What there is
// to do is what internal/node/plan says; what is there is asked of the runtime, when
// that says that it has changed. So the agent may be killed at any time: the next one
// finds the pods that run and goes on. Of what it knows only the ledger is its own:
// when a pod was accepted, and how one has ended.
//
// Where pods come from, and who is told how they are, is for others.
package agent
