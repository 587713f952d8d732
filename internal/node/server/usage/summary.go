package usage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsv1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"fairlead.run/internal/node/volume"
)

// Summary is what the node and its pods use. Without disks and network it is
// of what autoscalers look at, and costs no look at a file system.
func (c *Collector) Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsv1.Summary, error) {
	node, err := c.node()
	if err != nil {
		return nil, err
	}
	list, err := c.pods(ctx)
	if err != nil {
		return nil, err
	}
	s := &scan{c: c, brief: onlyCPUAndMemory, pods: map[types.UID]*corev1.Pod{}}
	for _, p := range c.cfg.Pods() {
		s.pods[p.UID] = p
	}
	if !onlyCPUAndMemory {
		c.disks(ctx, s, node)
		if c.cfg.Volumes != nil {
			s.volumes = c.cfg.Volumes(ctx)
		}
	}
	out := &statsv1.Summary{Node: *node, Pods: []statsv1.PodStats{}}
	for _, p := range newest(list) {
		out.Pods = append(out.Pods, s.pod(p))
	}
	slices.SortFunc(out.Pods, func(a, b statsv1.PodStats) int {
		return strings.Compare(a.PodRef.Namespace+"/"+a.PodRef.Name+"/"+a.PodRef.UID, b.PodRef.Namespace+"/"+b.PodRef.Name+"/"+b.PodRef.UID)
	})
	return out, nil
}

// node is processors, memory and the system's own cgroups.
func (c *Collector) node() (*statsv1.NodeStats, error) {
	now := time.Now()
	cpu, boot, err := c.processor(now)
	if err != nil {
		return nil, err
	}
	memory, swap, err := c.host.memory()
	if err != nil {
		return nil, err
	}
	at := metav1.NewTime(now)
	memory.Time, swap.Time = at, at
	out := &statsv1.NodeStats{NodeName: c.cfg.NodeName, StartTime: metav1.NewTime(boot), CPU: cpu, Memory: memory, Swap: swap}
	for _, s := range c.cfg.Systems {
		cpu, memory, err := c.host.cgroup(s.Cgroup)
		if err != nil {
			c.cfg.Log.Debug("a cgroup of the system cannot be measured", "name", s.Name, "cgroup", s.Cgroup, "error", err)
			continue
		}
		cpu.Time, memory.Time = at, at
		out.SystemContainers = append(out.SystemContainers, statsv1.ContainerStats{Name: s.Name, StartTime: out.StartTime, CPU: cpu, Memory: memory})
	}
	return out, nil
}

// disks adds file systems, network and processes to the node.
func (c *Collector) disks(ctx context.Context, s *scan, node *statsv1.NodeStats) {
	now := node.CPU.Time
	var errs []error
	fs, err := fileSystem(c.cfg.Root)
	errs = append(errs, err)
	if fs != nil {
		fs.Time = now
		node.Fs, s.fs, s.layers = fs, fs, fs
	}
	network, err := c.host.network()
	errs = append(errs, err)
	if network != nil {
		network.Time = now
		node.Network = network
	}
	if p := c.host.pressure("io"); p != nil {
		node.IO = &statsv1.IOStats{Time: now, PSI: p}
	}
	if node.Rlimit = c.host.processes(); node.Rlimit != nil {
		node.Rlimit.Time = now
	}
	info, err := c.cfg.Images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	errs = append(errs, err)
	if err == nil {
		node.Runtime = &statsv1.RuntimeStats{}
		node.Runtime.ImageFs, err = ofRuntime(info.GetImageFilesystems())
		errs = append(errs, err)
		node.Runtime.ContainerFs, err = ofRuntime(info.GetContainerFilesystems())
		errs = append(errs, err)
		if node.Runtime.ContainerFs == nil {
			node.Runtime.ContainerFs = node.Runtime.ImageFs
		}
		if node.Runtime.ContainerFs != nil {
			s.layers = node.Runtime.ContainerFs
		}
	}
	if err := errors.Join(errs...); err != nil {
		c.cfg.Log.Warn("the summary of the node lacks a part", "error", err)
	}
}

// ofRuntime is a file system of the runtime: how full it is, and how much of
// that is the runtime's.
func ofRuntime(list []*runtimeapi.FilesystemUsage) (*statsv1.FsStats, error) {
	if len(list) == 0 {
		return nil, nil
	}
	u := list[0]
	fs, err := fileSystem(u.GetFsId().GetMountpoint())
	if err != nil {
		return nil, fmt.Errorf("measure the file system of the runtime: %w", err)
	}
	fs.Time, fs.UsedBytes, fs.InodesUsed = moment(u.GetTimestamp()), number(u.GetUsedBytes()), number(u.GetInodesUsed())
	return fs, nil
}

// scan is one summary while it is made.
type scan struct {
	c     *Collector
	brief bool
	pods  map[types.UID]*corev1.Pod
	// volumes are those of pods, with what the pods' other files take.
	volumes map[types.UID][]volume.Usage
	// The file systems of the node and of writable layers, if they are known.
	fs, layers *statsv1.FsStats
}

func (s *scan) pod(p *runtimeapi.PodSandboxStats) statsv1.PodStats {
	m, linux := p.GetAttributes().GetMetadata(), p.GetLinux()
	known := s.pods[types.UID(m.GetUid())]
	out := statsv1.PodStats{
		PodRef:     statsv1.PodReference{Name: m.GetName(), Namespace: m.GetNamespace(), UID: m.GetUid()},
		Containers: []statsv1.ContainerStats{}, CPU: cpuOf(linux.GetCpu()), Memory: memoryOf(linux.GetMemory()),
	}
	if known != nil && known.Status.StartTime != nil {
		out.StartTime = *known.Status.StartTime
	}
	for _, c := range linux.GetContainers() {
		out.Containers = append(out.Containers, s.container(known, c))
	}
	slices.SortFunc(out.Containers, func(a, b statsv1.ContainerStats) int { return strings.Compare(a.Name, b.Name) })
	if out.CPU == nil {
		out.CPU = sumCPU(out.Containers)
	}
	if out.Memory == nil {
		out.Memory = sumMemory(out.Containers)
	}
	out.Swap = sumSwap(out.Containers)
	if s.brief {
		return out
	}
	out.Network, out.IO = networkOf(linux.GetNetwork()), ioOf(linux.GetIo())
	if n := number(linux.GetProcess().GetProcessCount()); n != nil {
		out.ProcessStats = &statsv1.ProcessStats{ProcessCount: n}
	}
	for _, u := range s.volumes[types.UID(m.GetUid())] {
		if u.Volume != "" {
			out.VolumeStats = append(out.VolumeStats, volumeOf(u, m.GetNamespace()))
		}
	}
	out.EphemeralStorage = s.ephemeral(&out)
	return out
}

func (s *scan) container(pod *corev1.Pod, u *runtimeapi.ContainerStats) statsv1.ContainerStats {
	name := u.GetAttributes().GetMetadata().GetName()
	out := statsv1.ContainerStats{Name: name, CPU: cpuOf(u.GetCpu()), Memory: memoryOf(u.GetMemory()), Swap: swapOf(u.GetSwap())}
	if st := statusOf(pod, name); st != nil && st.State.Running != nil {
		out.StartTime = st.State.Running.StartedAt
	}
	if s.brief {
		return out
	}
	out.IO = ioOf(u.GetIo())
	if w := u.GetWritableLayer(); w != nil {
		out.Rootfs = part(s.layers, number(w.GetUsedBytes()), number(w.GetInodesUsed()))
		out.Rootfs.Time = moment(w.GetTimestamp())
	}
	if pod != nil && s.c.cfg.Logs != nil {
		bytes, files := folder(filepath.Join(s.c.cfg.Logs(pod), name))
		out.Logs = part(s.fs, bytes, files)
		out.Logs.Time = metav1.Now()
	}
	return out
}

// part is what somebody has of a file system.
func part(of *statsv1.FsStats, bytes, inodes *uint64) *statsv1.FsStats {
	out := &statsv1.FsStats{UsedBytes: bytes, InodesUsed: inodes}
	if of != nil {
		out.CapacityBytes, out.AvailableBytes, out.Inodes, out.InodesFree = of.CapacityBytes, of.AvailableBytes, of.Inodes, of.InodesFree
	}
	return out
}

// folder is what the files of a folder of logs take. A runtime makes no folders
// in it.
func folder(path string) (bytes, files *uint64) {
	list, err := os.ReadDir(path)
	if err != nil {
		return nil, nil
	}
	bytes, files = new(uint64(0)), new(uint64(1)) // the folder itself
	for _, e := range list {
		info, err := e.Info()
		if err != nil {
			continue // gone, by a rotation
		}
		*files++
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			*bytes += uint64(s.Blocks) * 512
		}
	}
	return bytes, files
}

// volumeOf is a volume of a pod in a namespace.
func volumeOf(u volume.Usage, namespace string) statsv1.VolumeStats {
	out := statsv1.VolumeStats{Name: u.Volume, FsStats: statsv1.FsStats{
		Time: metav1.NewTime(u.At), UsedBytes: amount(u.Bytes), CapacityBytes: amount(u.Capacity), AvailableBytes: amount(u.Available),
		InodesUsed: amount(u.Inodes), Inodes: amount(u.AllInodes), InodesFree: amount(u.Free),
	}}
	if u.Claim != "" {
		out.PVCRef = &statsv1.PVCReference{Name: u.Claim, Namespace: namespace}
	}
	return out
}

func amount(n int64) *uint64 { return new(uint64(max(0, n))) }

// ephemeral is what goes with the pod: the layers and logs of its containers, its empty
// folders on disk and the files that its containers have from the node.
func (s *scan) ephemeral(p *statsv1.PodStats) *statsv1.FsStats {
	var bytes, inodes []*uint64
	for _, c := range p.Containers {
		for _, fs := range []*statsv1.FsStats{c.Rootfs, c.Logs} {
			if fs != nil {
				bytes, inodes = append(bytes, fs.UsedBytes), append(inodes, fs.InodesUsed)
			}
		}
	}
	for _, u := range s.volumes[types.UID(p.PodRef.UID)] {
		if u.Local {
			bytes, inodes = append(bytes, amount(u.Bytes)), append(inodes, amount(u.Inodes))
		}
	}
	out := part(s.fs, sum(bytes...), sum(inodes...))
	out.Time = metav1.Now()
	return out
}

// statusOf is the status of a container of any kind; nil if there is none.
func statusOf(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	if pod == nil {
		return nil
	}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}
