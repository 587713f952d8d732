package agent

import (
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/source"
)

// SourceAPI is the source of pods that come from an API server: those without a
// source.SourceAnnotation.
const SourceAPI = "api"

func sourceOf(p *corev1.Pod) string { return cmp.Or(p.Annotations[source.SourceAnnotation], SourceAPI) }

// survey finds what an agent before this one has left. It goes on until the runtime
// answers.
func (a *Agent) survey(ctx context.Context) (map[types.UID]*corev1.Pod, error) {
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		within, cancel := call(ctx)
		list, err := a.cfg.Runtime.ListPodSandbox(within, &runtimeapi.ListPodSandboxRequest{})
		cancel()
		if err == nil {
			return a.left(list.GetItems()), nil
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

// left are the pods of which there is something: a sandbox, or no more than a page of
// the ledger, and volumes, as after a reboot.
func (a *Agent) left(list []*runtimeapi.PodSandbox) map[types.UID]*corev1.Pod {
	out := map[types.UID]*corev1.Pod{}
	for uid, r := range a.ledger.All() {
		out[uid] = leftOver(metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name, UID: uid}, r.Source)
	}
	var mine []*runtimeapi.PodSandbox
	for _, s := range list {
		if a.Mine(s) {
			mine = append(mine, s)
		}
		delete(out, types.UID(s.GetMetadata().GetUid())) // if it is not mine, it may have been taken over
	}
	for _, s := range mine {
		m := s.GetMetadata()
		uid := types.UID(m.GetUid())
		out[uid] = leftOver(metav1.ObjectMeta{Namespace: m.GetNamespace(), Name: m.GetName(), UID: uid}, s.GetAnnotations()[source.SourceAnnotation])
	}
	return out
}

// leftOver is a pod of which nothing is known but its name and where it came from.
func leftOver(meta metav1.ObjectMeta, from string) *corev1.Pod {
	if from != "" {
		meta.Annotations = map[string]string{source.SourceAnnotation: from}
	}
	return &corev1.Pod{ObjectMeta: meta}
}
