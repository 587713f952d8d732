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

// Dead are the containers that may go: of pods that are gone all that have
// ended; of the others what is more than may be kept, the oldest first. What
// has no pod is not ours to remove. A container that was only created goes
// only if a later attempt is there; one that nobody could observe stays.
func Dead(list []*runtimeapi.Container, p ContainerPolicy, now time.Time, wanted func(uid string) bool) []*runtimeapi.Container {
	units, latest := map[unit][]*runtimeapi.Container{}, map[unit]*runtimeapi.Container{}
	var order []unit
	var out []*runtimeapi.Container
	for _, c := range list {
		u := unit{c.GetLabels()[podspec.LabelPodUID], c.GetLabels()[podspec.LabelContainerName]}
		if latest[u] == nil || byAge(c, latest[u]) > 0 {
			latest[u] = c
		}
	}
	for _, c := range list {
		u := unit{c.GetLabels()[podspec.LabelPodUID], c.GetLabels()[podspec.LabelContainerName]}
		if u.pod == "" || !ended(c, latest[u]) || p.MinAge > 0 && now.Sub(time.Unix(0, c.GetCreatedAt())) < p.MinAge {
			continue // a clock that was set back makes ages negative
		}
		if !wanted(u.pod) {
			out = append(out, c)
			continue
		}
		if units[u] == nil {
			order = append(order, u)
		}
		units[u] = append(units[u], c)
	}
	kept := 0
	shrink := func(u unit, keep int) {
		slices.SortStableFunc(units[u], func(a, b *runtimeapi.Container) int { return byAge(b, a) })
		if n := len(units[u]); n > keep {
			out = append(out, oldestFirst(units[u][keep:])...)
			units[u] = units[u][:keep]
		}
	}
	for _, u := range order {
		if p.PerPod >= 0 {
			shrink(u, p.PerPod)
		}
		kept += len(units[u])
	}
	if p.OfAllPods < 0 || kept <= p.OfAllPods {
		return out
	}
	// First every container has to give up the same, then the oldest go.
	var rest []*runtimeapi.Container
	for _, u := range order {
		shrink(u, max(p.OfAllPods/len(order), 1))
		rest = append(rest, units[u]...)
	}
	newestFirst(rest)
	if len(rest) > p.OfAllPods {
		out = append(out, oldestFirst(rest[p.OfAllPods:])...)
	}
	return out
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
