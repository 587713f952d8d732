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
	"fairlead.run/internal/node/strays"
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
// the ledger, and volumes, as after a reboot; or volumes alone.
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
	a.strays(list, out)
	return out
}

// nowhere is the source of pods of which only folders are left: any could be theirs.
const nowhere = "nowhere"

// strays adds pods of which no more is known than that they have folders, as when a power
// cut has left an empty page in the ledger.
func (a *Agent) strays(list []*runtimeapi.PodSandbox, out map[types.UID]*corev1.Pod) {
	if a.transient {
		return
	}
	there := map[string]bool{}
	for _, s := range list {
		there[s.GetMetadata().GetUid()] = true
	}
	found, err := strays.Find(a.cfg.Root, a.cfg.State, func(uid string) bool { return there[uid] || a.ledger.Knows(types.UID(uid)) })
	if err != nil {
		a.cfg.Log.Warn("folders that pods may have left stay", "error", err)
	}
	for _, uid := range found {
		out[types.UID(uid)] = leftOver(metav1.ObjectMeta{UID: types.UID(uid)}, nowhere)
	}
}

// leftOver is a pod of which nothing is known but its name and where it came from.
func leftOver(meta metav1.ObjectMeta, from string) *corev1.Pod {
	if from != "" {
		meta.Annotations = map[string]string{source.SourceAnnotation: from}
	}
	return &corev1.Pod{ObjectMeta: meta}
}
