package agent

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/node/tally"
	"fairlead.run/internal/node/volume"
	"fairlead.run/internal/node/volume/survey"
)

// Volumes is what volumes of the pods take, and the files that their containers have from the
// node, as the survey of the agent has it.
func (a *Agent) Volumes(ctx context.Context, ask survey.Ask) map[types.UID]survey.Pod {
	return a.volumes.Usage(ctx, ask)
}

// parts are what can be measured of all pods.
func (a *Agent) parts() map[types.UID][]volume.Part {
	out := map[types.UID][]volume.Part{}
	for _, w := range a.all() {
		if set := w.measured.Load(); set != nil {
			out[w.uid] = set.Parts()
		}
	}
	return out
}

// claims are the PersistentVolumeClaims of all pods. What could not be measured is left out.
func (a *Agent) claims() []tally.Claim {
	all := a.volumes.Usage(context.Background(), survey.Ask{Only: func(_ types.UID, u volume.Usage) bool { return u.Claim != "" }})
	var out []tally.Claim
	for _, w := range a.all() {
		for _, u := range all[w.uid].Volumes {
			out = append(out, tally.Claim{
				Namespace: w.in.Pod().Namespace, Name: u.Claim, Capacity: u.Capacity, Available: u.Available, Used: u.Bytes,
				Inodes: u.AllInodes, InodesFree: u.Free, InodesUsed: u.Inodes,
			})
		}
	}
	return out
}
