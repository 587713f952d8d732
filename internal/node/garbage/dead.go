package garbage

import (
	"cmp"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/podspec"
)

// ContainerPolicy says which containers that have ended are kept.
type ContainerPolicy struct {
	MinAge    time.Duration // since it was created
	PerPod    int           // of each container of a pod; less than 0 means any number
	OfAllPods int           // less than 0 means any number
}

// DefaultContainerPolicy is what a kubelet takes where nothing is said: the last
// attempt of each container.
var DefaultContainerPolicy = ContainerPolicy{PerPod: 1, OfAllPods: -1}

// unit is a container of a pod, of which there may be several attempts.
type unit struct{ pod, name string }

func unitOf(c *runtimeapi.Container) unit {
	return unit{c.GetLabels()[podspec.LabelPodUID], c.GetLabels()[podspec.LabelContainerName]}
}

// latest are the latest attempts.
func latest(list []*runtimeapi.Container) map[unit]*runtimeapi.Container {
	out := map[unit]*runtimeapi.Container{}
	for _, c := range list {
		if u := unitOf(c); out[u] == nil || byAge(c, out[u]) > 0 {
			out[u] = c
		}
	}
	return out
}

// attempts are those that have ended, of the pods that are there, and what of them goes.
type attempts struct {
	order []unit
	kept  map[unit][]*runtimeapi.Container
	goes  []*runtimeapi.Container
}

func (a *attempts) add(c *runtimeapi.Container) {
	u := unitOf(c)
	if a.kept[u] == nil {
		a.order = append(a.order, u)
	}
	a.kept[u] = append(a.kept[u], c)
}

// shrink keeps so many of each container, the latest.
func (a *attempts) shrink(keep int) {
	for _, u := range a.order {
		list := a.kept[u]
		slices.SortStableFunc(list, func(a, b *runtimeapi.Container) int { return byAge(b, a) })
		if len(list) > keep {
			a.goes = append(a.goes, oldestFirst(list[keep:])...)
			a.kept[u] = list[:keep]
		}
	}
}

// rest are all that are kept.
func (a *attempts) rest() []*runtimeapi.Container {
	var out []*runtimeapi.Container
	for _, u := range a.order {
		out = append(out, a.kept[u]...)
	}
	return out
}

// Dead are the containers that may go: of pods that are gone all that have
// ended; of the others what is more than may be kept, the oldest first. What
// has no pod is not ours to remove. A container that was only created goes
// only if a later attempt is there; one that nobody could observe stays.
func Dead(list []*runtimeapi.Container, p ContainerPolicy, now time.Time, wanted func(uid string) bool) []*runtimeapi.Container {
	newest, a := latest(list), &attempts{kept: map[unit][]*runtimeapi.Container{}}
	for _, c := range list {
		u := unitOf(c)
		switch {
		case u.pod == "" || !ended(c, newest[u]):
		case p.MinAge > 0 && now.Sub(time.Unix(0, c.GetCreatedAt())) < p.MinAge: // a clock that was set back makes ages negative
		case !wanted(u.pod):
			a.goes = append(a.goes, c)
		default:
			a.add(c)
		}
	}
	if p.PerPod >= 0 {
		a.shrink(p.PerPod)
	}
	if p.OfAllPods < 0 || len(a.rest()) <= p.OfAllPods {
		return a.goes
	}
	// First every container has to give up the same, then the oldest go.
	a.shrink(max(p.OfAllPods/len(a.order), 1))
	rest := a.rest()
	newestFirst(rest)
	if len(rest) > p.OfAllPods {
		a.goes = append(a.goes, oldestFirst(rest[p.OfAllPods:])...)
	}
	return a.goes
}

// aged is a container or a sandbox.
type aged[M interface{ GetAttempt() uint32 }] interface {
	GetMetadata() M
	GetCreatedAt() int64
}

// byAge compares two attempts at the same thing: the older one is less. Attempts are
// counted, as a clock may have been set back between them; those of a runtime's clients
// that do not count go by their times.
func byAge[M interface{ GetAttempt() uint32 }](a, b aged[M]) int {
	return cmp.Or(cmp.Compare(a.GetMetadata().GetAttempt(), b.GetMetadata().GetAttempt()), cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt()))
}

// ended says that a container does not run and will not.
func ended(c, latest *runtimeapi.Container) bool {
	switch c.GetState() {
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return true
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return byAge(c, latest) < 0
	}
	return false
}

func newestFirst(list []*runtimeapi.Container) {
	slices.SortStableFunc(list, func(a, b *runtimeapi.Container) int { return cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()) })
}

func oldestFirst(list []*runtimeapi.Container) []*runtimeapi.Container {
	out := slices.Clone(list)
	slices.Reverse(out)
	return out
}

// DeadSandboxes are the sandboxes that may go: none that is ready, none with a
// container, and none that is the newest of a pod that exists.
func DeadSandboxes(list []*runtimeapi.PodSandbox, containers []*runtimeapi.Container, wanted func(uid string) bool) []*runtimeapi.PodSandbox {
	full, newest := map[string]bool{}, map[string]*runtimeapi.PodSandbox{}
	for _, c := range containers {
		full[c.GetPodSandboxId()] = true
	}
	for _, s := range list {
		if uid := s.GetMetadata().GetUid(); newest[uid] == nil || byAge(s, newest[uid]) > 0 {
			newest[uid] = s
		}
	}
	var out []*runtimeapi.PodSandbox
	for _, s := range list {
		uid := s.GetMetadata().GetUid()
		if uid == "" || s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY || full[s.GetId()] || wanted(uid) && newest[uid] == s {
			continue
		}
		out = append(out, s)
	}
	return out
}
