package adminv1

import "time"

// Operation is something that the daemon is doing at this moment. Ops answers
// with one frame, which is an OpsReply, and is asked with none.
type Operation struct {
	Verb    string    `json:"verb"`          // "run", "create", "start", "stop", "remove", "pull", ...
	Kind    string    `json:"kind"`          // "pod", "container" or "image"
	Name    string    `json:"name"`          // "namespace/pod", "namespace/pod/container" or an image's name
	ID      string    `json:"id,omitempty"`  // of the object, once it has one
	Pod     string    `json:"pod,omitempty"` // id of the pod that a container is in
	Stage   string    `json:"stage"`         // what it is doing, for people
	Began   time.Time `json:"began"`
	Entered time.Time `json:"stageBegan,omitzero"` // since when it has been at that stage, where that is known
	Waiting int       `json:"waiting"`             // how many callers wait for its end
}

// OpsReply is the only frame that Ops answers.
type OpsReply struct {
	Operations []Operation `json:"operations"`
}
