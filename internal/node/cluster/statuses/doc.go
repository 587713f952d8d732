// Package statuses writes what a node knows of its pods to the API server: their
// statuses, and in the end that they are gone.
//
// What a status is, it does not know: that comes from the agent. It writes the
// latest one of a pod, when it is another than the API server has; no pod waits
// for another.
package statuses
