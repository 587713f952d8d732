package adminv1

import "time"

// TraceRequest is the only frame that Trace is asked with.
type TraceRequest struct {
	Pod string `json:"pod"` // id
}

// TraceReply is the only frame that Trace answers.
type TraceReply struct {
	Operations []Past `json:"operations"`
}

// Past is an operation that is over.
type Past struct {
	Verb    string    `json:"verb"`
	Kind    string    `json:"kind"`
	Name    string    `json:"name"`
	Handler string    `json:"handler,omitempty"`
	Began   time.Time `json:"began"`
	MS      float64   `json:"ms"`              // milliseconds from its beginning to its end
	Error   string    `json:"error,omitempty"` // why it failed
	Stages  []Stage   `json:"stages"`
}

// Stage is a part of an operation.
type Stage struct {
	Name string  `json:"name"`
	MS   float64 `json:"ms"`
}
