// Package removal takes containers and pods down through any CRI endpoint: preStop
// hooks, the grace period, and what is left after it.
//
// It works from what a runtime has on record, so that it needs no manifest. The
// order in which the containers of a pod end is for internal/node/plan to say.
package removal
