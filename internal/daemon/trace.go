package daemon

import (
	"context"
	"fmt"
	"time"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/internal/errdefs"
)

// Trace implements adminv1.Server.
func (a admin) Trace(_ context.Context, s adminv1.Stream) error {
	var req adminv1.TraceRequest
	if err := adminv1.ReceiveJSON(s, &req); err != nil {
		return fmt.Errorf("trace a pod: read the request: %w (%w)", err, errdefs.ErrInvalidArgument)
	}
	r, err := a.pods.FindPod(req.Pod)
	if err != nil {
		return fmt.Errorf("trace a pod: %w", err)
	}
	reply := adminv1.TraceReply{Operations: []adminv1.Past{}}
	for _, e := range a.pods.Past(r) {
		past := adminv1.Past{
			Verb: e.Verb, Kind: e.Kind, Name: e.Name, Handler: e.Handler, Began: e.Began, MS: float64(e.Took) / float64(time.Millisecond),
		}
		if e.Err != nil {
			past.Error = e.Err.Error()
		}
		for _, step := range e.Steps {
			past.Stages = append(past.Stages, adminv1.Stage{Name: step.Stage, MS: step.MS})
		}
		reply.Operations = append(reply.Operations, past)
	}
	return adminv1.SendJSON(s, reply)
}
