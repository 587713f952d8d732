package agent

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/node/strays"
)

// survey finds what an agent before this one has left. It goes on until the runtime
// answers.
func (a *Agent) survey(ctx context.Context) (map[types.UID]*corev1.Pod, error) {
	search := strays.Search{Ledger: a.ledger, Root: a.cfg.Root, State: a.cfg.State, Mine: a.Mine, Failed: func(err error) {
		a.warn(LeftoverNotFound, "Folders of pods that an agent before this one has left stay, and take room on the node; they are looked for again when the agent starts: "+err.Error()+hostpath.Advice(err))
	}}
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		within, cancel := call(ctx)
		list, err := a.cfg.Runtime.ListPodSandbox(within, &runtimeapi.ListPodSandboxRequest{})
		cancel()
		if err == nil {
			return search.Left(list.GetItems()), nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		a.cfg.Log.Warn("the runtime does not say which pods it has, and is asked again", "error", err, "again", pause.String())
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}
