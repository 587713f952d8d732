package daemon

import (
	"context"
	"slices"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/internal/image"
	"fairlead.run/internal/lifecycle"
	"fairlead.run/internal/lifecycle/ops"
)

// Ops implements adminv1.Server.
func (a admin) Ops(_ context.Context, s adminv1.Stream) error {
	return adminv1.SendJSON(s, adminv1.OpsReply{Operations: operations(a.pods, a.images)})
}

// operations are those on pods and on images, the oldest first.
func operations(pods *lifecycle.Core, images *image.Store) []adminv1.Operation {
	out := []adminv1.Operation{}
	for _, op := range pods.Operations() {
		id := string(op.Pod)
		if op.Kind == ops.KindContainer {
			id = string(op.Container)
		}
		out = append(out, adminv1.Operation{
			Verb: op.Verb, Kind: op.Kind, Name: op.Name, ID: id, Pod: string(op.Pod),
			Stage: op.Stage, Began: op.Began, Entered: op.Entered, Waiting: op.Waiting,
		})
	}
	for _, op := range images.Operations() {
		out = append(out, adminv1.Operation{
			Verb: op.Verb, Kind: "image", Name: op.Name, Stage: op.Stage, Began: op.Began, Waiting: op.Waiting,
		})
	}
	slices.SortStableFunc(out, func(a, b adminv1.Operation) int { return a.Began.Compare(b.Began) })
	return out
}
