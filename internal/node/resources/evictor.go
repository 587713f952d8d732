package resources

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsv1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"fairlead.run/internal/node/agent"
	"fairlead.run/internal/node/eviction"
	"fairlead.run/internal/node/volume"
	"fairlead.run/internal/node/volume/survey"
)

// evictor is the node of an eviction.Manager.
type evictor struct{ k *Keeper }

// Observe implements eviction.Node.
func (e evictor) Observe(context.Context) (eviction.Observations, error) {
	return e.k.observer.Observe()
}

// Pods implements eviction.Node. What pods use is asked for if the node runs short, or if
// there are some that have limits of their own for disk.
func (e evictor) Pods(ctx context.Context, short bool) ([]eviction.Pod, error) {
	var list []*corev1.Pod
	for _, p := range running(e.k.pods) {
		if short || limitsDisk(p) {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	summary, err := e.k.usage.Load().Summary(ctx, false)
	if err != nil {
		return nil, fmt.Errorf("measure pods: %w", err)
	}
	used := map[types.UID]statsv1.PodStats{}
	for _, s := range summary.Pods {
		used[types.UID(s.PodRef.UID)] = s
	}
	return e.weigh(ctx, list, used), nil
}

// weigh has what pods use. What of it cannot be measured of one hides none of the others.
func (e evictor) weigh(ctx context.Context, list []*corev1.Pod, used map[types.UID]statsv1.PodStats) []eviction.Pod {
	volumes := e.volumes(ctx, list)
	out := make([]eviction.Pod, len(list))
	for i, p := range list {
		out[i] = eviction.Pod{Pod: e.k.weighed(p)}
		if s, ok := used[p.UID]; ok {
			measured(&out[i], s)
		}
		takes(&out[i], volumes[p.UID].Volumes)
		if err := volumes[p.UID].Err; err != nil {
			e.k.cfg.Log.Warn("not all volumes of a pod could be measured, and those count for evictions as they were, or as empty", "pod", p.Namespace+"/"+p.Name, "error", err)
		}
	}
	return out
}

// limitsDisk says that a pod may end because of what it has on disk itself.
func limitsDisk(p *corev1.Pod) bool {
	for _, v := range p.Spec.Volumes {
		if v.EmptyDir != nil && v.EmptyDir.SizeLimit != nil {
			return true
		}
	}
	return slices.ContainsFunc(slices.Concat(p.Spec.InitContainers, p.Spec.Containers), func(c corev1.Container) bool {
		_, has := c.Resources.Limits[corev1.ResourceEphemeralStorage]
		return has
	})
}

func measured(p *eviction.Pod, s statsv1.PodStats) {
	p.Measured = true
	p.Memory = workingSet(s.Memory)
	if s.ProcessStats != nil {
		p.Pids = count(s.ProcessStats.ProcessCount)
	}
	for _, c := range s.Containers {
		p.Containers = append(p.Containers, eviction.Container{Name: c.Name, Memory: workingSet(c.Memory), Layer: onDisk(c.Rootfs), Logs: onDisk(c.Logs)})
	}
}

func workingSet(m *statsv1.MemoryStats) int64 {
	if m == nil {
		return 0
	}
	return count(m.WorkingSetBytes)
}

func onDisk(fs *statsv1.FsStats) eviction.Usage {
	if fs == nil {
		return eviction.Usage{}
	}
	return eviction.Usage{Bytes: count(fs.UsedBytes), Inodes: count(fs.InodesUsed)}
}

func count(n *uint64) int64 {
	if n == nil {
		return 0
	}
	return int64(min(*n, 1<<62))
}

const (
	// volumesLimit is how long the volumes of all pods may be measured. Pods may have to go,
	// whatever hangs there.
	volumesLimit = 10 * time.Second
	// volumesAge is how old their numbers may be: what is too large is found soon.
	volumesAge = 10 * time.Second
)

// volumes measures those of pods that are the node's own.
func (e evictor) volumes(ctx context.Context, list []*corev1.Pod) map[types.UID]survey.Pod {
	matters := make(map[types.UID]bool, len(list))
	for _, p := range list {
		matters[p.UID] = true
	}
	return e.k.pods.Volumes(ctx, survey.Ask{Age: volumesAge, Patience: volumesLimit, Only: func(pod types.UID, u volume.Usage) bool {
		return matters[pod] && (u.Local || u.Memory)
	}})
}

// takes adds volumes, and files that containers have from the node.
func takes(p *eviction.Pod, list []volume.Usage) {
	p.Volumes = map[string]eviction.Usage{}
	for _, u := range list {
		has := eviction.Usage{Bytes: u.Bytes, Inodes: u.Inodes}
		if u.Volume == "" {
			p.Files = has
			continue
		}
		p.Volumes[u.Volume] = has
	}
}

// Evict implements eviction.Node.
func (e evictor) Evict(ctx context.Context, v eviction.Eviction) error {
	why := agent.Refusal{Reason: eviction.Reason, Message: v.Message, Disrupts: v.Message}
	if !e.k.pods.Evict(v.Pod.UID, int64(v.Grace/time.Second), why) {
		return eviction.ErrGone
	}
	e.k.stats.evictions.Add(1, string(v.Signal))
	e.k.cfg.Tell.Evicted(v.Pod, v.Message, v.Annotations)
	return e.k.pods.Await(ctx, v.Pod.UID)
}

// RemoveContainers implements eviction.Node.
func (e evictor) RemoveContainers(ctx context.Context) error {
	if e.k.garbage == nil {
		return nil
	}
	return e.k.garbage.DeleteUnusedContainers(ctx)
}

// RemoveImages implements eviction.Node.
func (e evictor) RemoveImages(ctx context.Context) error {
	if e.k.garbage == nil {
		return nil
	}
	_, err := e.k.garbage.DeleteUnusedImages(ctx)
	return err
}

// SetConditions implements eviction.Node.
func (e evictor) SetConditions(has []corev1.NodeConditionType) {
	e.k.pressure.Store(&has)
	e.k.cfg.Tell.Changed()
}

// Event implements eviction.Node.
func (e evictor) Event(reason, message string) {
	e.k.cfg.Tell.Node(corev1.EventTypeWarning, reason, message)
}

// layout finds out which disks the runtime has its images and containers on. Without an
// answer they count as on the node's own, of which Run tells.
func (k *Keeper) layout(ctx context.Context) (images string, layout eviction.Layout) {
	info, err := k.cfg.Images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	images = k.cfg.Folder
	if list := info.GetImageFilesystems(); len(list) > 0 && list[0].GetFsId().GetMountpoint() != "" {
		images = list[0].GetFsId().GetMountpoint()
	}
	containers := images
	if list := info.GetContainerFilesystems(); len(list) > 0 && list[0].GetFsId().GetMountpoint() != "" {
		containers = list[0].GetFsId().GetMountpoint()
	}
	if err == nil {
		layout, err = eviction.LayoutOf(k.cfg.Folder, images, containers)
	}
	if err != nil {
		k.blind = err
		return k.cfg.Folder, eviction.OneDisk
	}
	return images, layout
}
