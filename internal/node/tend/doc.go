// Package tend does what goes on beside one attempt at a container while it runs: its
// postStart hook, its probes, and its preStop hook once it is to end.
//
// Nothing of it is waited for where it could hold up the pod. What it comes to is
// told to whoever plans for the pod; what follows from that is not decided here.
package tend
