package agent

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/images"
)

// Mine says that a sandbox is one of this agent's.
func (a *Agent) Mine(s *runtimeapi.PodSandbox) bool {
	return s.GetAnnotations()[AnnotationAgent] == a.cfg.Name
}

// Has says that there is a pod, or that there may be one: as long as nobody has said
// which pods are wanted, any may be.
func (a *Agent) Has(uid string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.settled || a.workers[types.UID(uid)] != nil {
		return true
	}
	return slices.ContainsFunc(a.wanted, func(p *corev1.Pod) bool { return string(p.UID) == uid })
}

// Present are the names of the pods of which there is anything here, by UID: also of such as
// have no status yet, and of those that end.
func (a *Agent) Present() map[types.UID]string {
	out := map[types.UID]string{}
	for _, w := range a.all() {
		out[w.uid] = w.name
	}
	return out
}

// Finished says that a pod has ended for good, and its status is kept: nobody needs
// its containers any more.
func (a *Agent) Finished(uid string) bool {
	w := a.worker(types.UID(uid))
	return w != nil && w.retired.Load()
}

// Rests says that nothing of a pod runs any more, or will, or that it is not here.
func (a *Agent) Rests(uid types.UID) bool {
	if w := a.worker(uid); w != nil {
		return w.retired.Load() || w.guest.Rests()
	}
	return !a.Has(string(uid))
}

// Leaves says that a pod is still ending, and that nobody wants it any more.
func (a *Agent) Leaves(uid types.UID) bool {
	w := a.worker(uid)
	return w != nil && w.guest.Leaves()
}

// VolumeImages are the images that volumes of pods show, by all names that they may
// have. No container tells of them.
func (a *Agent) VolumeImages() []string {
	var out []string
	for _, w := range a.all() {
		if w.retired.Load() {
			continue
		}
		for _, v := range w.in.Pod().Spec.Volumes {
			if v.Image != nil && v.Image.Reference != "" {
				out = append(out, v.Image.Reference, images.FullName(v.Image.Reference))
			}
		}
	}
	return out
}
