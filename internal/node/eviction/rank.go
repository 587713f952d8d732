package eviction

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	podresources "k8s.io/component-helpers/resource"

	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/priority"
)

// Usage is what something takes on a disk.
type Usage struct{ Bytes, Inodes int64 }

func (u Usage) plus(v Usage) Usage { return Usage{u.Bytes + v.Bytes, u.Inodes + v.Inodes} }

// Container is what one container uses.
type Container struct {
	Name   string
	Memory int64 // bytes of its working set
	Layer  Usage // what it has written to its root file system
	Logs   Usage
}

// Pod is a pod that runs, and what it uses.
type Pod struct {
	Pod *corev1.Pod
	// Measured is false if nothing of what follows is known yet.
	Measured   bool
	Memory     int64 // bytes of its working set
	Pids       int64
	Containers []Container
	Volumes    map[string]Usage // by name; those that are on this node's disks or in its memory
	Files      Usage            // hosts files and last words; see volume.Dirs
}

// Layout says what is on which disk.
type Layout int

const (
	// OneDisk has everything.
	OneDisk Layout = iota
	// ImagesApart has images and containers' layers on a disk of their own, and
	// logs and volumes on nodefs.
	ImagesApart
	// OnlyImagesApart has only images on a disk of their own, and containers'
	// layers on nodefs (KEP-4191).
	OnlyImagesApart
)

// on is what a pod takes on the disk that a signal is about.
func (p Pod) on(l Layout, s Signal) Usage {
	images := s == ImagefsAvailable || s == ImagefsInodesFree
	layers := !images
	logs := !images
	switch l {
	case OneDisk:
		layers, logs = true, true
	case ImagesApart:
		layers = images
	}
	var out Usage
	for _, c := range p.Containers {
		if layers {
			out = out.plus(c.Layer)
		}
		if logs {
			out = out.plus(c.Logs)
		}
	}
	if logs {
		out = out.plus(p.volumes()).plus(p.Files)
	}
	return out
}

// volumes are those on disk.
func (p Pod) volumes() Usage {
	var out Usage
	for _, v := range p.Pod.Spec.Volumes {
		if v.EmptyDir != nil && v.EmptyDir.Medium != corev1.StorageMediumDefault {
			continue
		}
		out = out.plus(p.Volumes[v.Name])
	}
	return out
}

// claim is what decides about a pod: how much it has, and how much of that it has
// asked for.
type claim struct {
	pod           Pod
	used, request int64
}

func claimOf(p Pod, s Signal, l Layout) claim {
	requests := capacity.Requests(p.Pod)
	switch starved[s] {
	case corev1.ResourceMemory:
		return claim{p, p.Memory, requests.Memory().Value()}
	case corev1.ResourceEphemeralStorage:
		return claim{p, p.on(l, s).Bytes, requests.StorageEphemeral().Value()}
	case "inodes":
		return claim{p, p.on(l, s).Inodes, 0}
	}
	return claim{p, p.Pids, 0}
}

// Rank has the pods that may be evicted for a signal, the first one first: those
// that use more than they asked for, then by priority, then by how much more they
// use. Nobody asks for processes or inodes. Critical pods are not among them, and
// what was not measured yet is behind the others of its priority.
func Rank(pods []Pod, s Signal, l Layout) []Pod {
	var claims []claim
	for _, p := range pods {
		if !priority.Critical(p.Pod) {
			claims = append(claims, claimOf(p, s, l))
		}
	}
	slices.SortStableFunc(claims, func(a, b claim) int {
		return cmp.Or(
			first(a.over() && s != PIDAvailable, b.over() && s != PIDAvailable),
			cmp.Compare(priority.Of(a.pod.Pod), priority.Of(b.pod.Pod)),
			first(a.pod.Measured, b.pod.Measured),
			cmp.Compare(b.used-b.request, a.used-a.request),
			strings.Compare(string(a.pod.Pod.UID), string(b.pod.Pod.UID)),
		)
	})
	out := make([]Pod, 0, len(claims))
	for _, c := range claims {
		out = append(out, c.pod)
	}
	return out
}

func (c claim) over() bool { return c.pod.Measured && c.used > c.request }

func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// container finds a container in the specification, with its requests.
func container(pod *corev1.Pod, name string) *corev1.Container {
	pod = capacity.Defaulted(pod)
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// diskLimit is what a pod may have on disk, if it has a limit.
func diskLimit(pod *corev1.Pod) (int64, string, bool) {
	q, ok := podresources.PodLimits(pod, podresources.PodResourcesOptions{})[corev1.ResourceEphemeralStorage]
	return q.Value(), q.String(), ok && q.Sign() > 0
}
