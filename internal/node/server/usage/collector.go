package usage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsv1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"fairlead.run/internal/node/volume"
)

// System is a cgroup that the summary shows as a container of the system.
type System struct {
	Name   string // statsv1.SystemContainerPods, for example
	Cgroup string // in the hierarchy, such as /kubepods
}

// Config is what a Collector works with.
type Config struct {
	NodeName string
	Runtime  runtimeapi.RuntimeServiceClient
	Images   runtimeapi.ImageServiceClient
	// Pods are those of the node, with their statuses.
	Pods func() []*corev1.Pod
	// Root is the folder whose file system is the node's.
	Root string
	Log  *slog.Logger

	// Volumes says what volumes of pods take, and under an empty name other files of a pod on
	// the node's disk. It may be nil.
	Volumes func(context.Context) map[types.UID][]volume.Usage
	// Logs is the folder with a folder for the logs of each container of a pod.
	// It may be nil.
	Logs    func(*corev1.Pod) string
	Systems []System
	// Host is the folder that proc and sys are in; "" is /.
	Host string
}

// Collector measures when it is asked.
type Collector struct {
	cfg  Config
	host host

	mu   sync.Mutex
	last sample
	rate *uint64

	machineOnce sync.Once
	machine     []string // labels of the machine, which do not change
}

// sample is a measurement of the node's processors.
type sample struct {
	at   time.Time
	used time.Duration
}

// New checks the configuration.
func New(c Config) (*Collector, error) {
	if c.Runtime == nil || c.Images == nil || c.Pods == nil || c.Root == "" || c.NodeName == "" || c.Log == nil {
		return nil, errors.New("make the collector of usage: Config.NodeName, Runtime, Images, Pods, Root and Log must be set")
	}
	if c.Host == "" {
		c.Host = "/"
	}
	return &Collector{cfg: c, host: host{c.Host}}, nil
}

// shortest is the least time that a rate is formed over: the kernel counts in
// hundredths of a second.
const shortest = time.Second

// processor is what the node's processors have done, with the rate since the
// request before.
func (c *Collector) processor(now time.Time) (*statsv1.CPUStats, time.Time, error) {
	used, boot, err := c.host.processor()
	if err != nil {
		return nil, boot, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := now.Sub(c.last.at)
	switch {
	case c.last.at.IsZero():
		c.last = sample{now, used}
	case passed >= shortest:
		c.rate = new(uint64(float64(max(0, used-c.last.used)) / passed.Seconds()))
		c.last = sample{now, used}
	}
	return &statsv1.CPUStats{
		Time: metav1.NewTime(now), UsageCoreNanoSeconds: new(uint64(used)), UsageNanoCores: c.rate, PSI: c.host.pressure("cpu"),
	}, boot, nil
}

// statsLimit is how long a runtime may take to say what all pods use. Evictions wait for
// that, too.
const statsLimit = time.Minute

// pods asks the runtime for what pods use. A runtime that knows only of
// containers is asked for these.
func (c *Collector) pods(ctx context.Context) ([]*runtimeapi.PodSandboxStats, error) {
	ctx, cancel := context.WithTimeout(ctx, statsLimit)
	defer cancel()
	resp, err := c.cfg.Runtime.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{})
	if err == nil {
		return resp.GetStats(), nil
	}
	if status.Code(err) != codes.Unimplemented {
		return nil, fmt.Errorf("list what pods use: %w", err)
	}
	list, err := c.cfg.Runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
	if err != nil {
		return nil, fmt.Errorf("list what containers use: %w", err)
	}
	return gather(list.GetStats()), nil
}

// Labels that agents give to containers, by which runtimes that know only of
// containers say whose they are.
const (
	labelName      = "io.kubernetes.pod.name"
	labelNamespace = "io.kubernetes.pod.namespace"
	labelUID       = "io.kubernetes.pod.uid"
)

// gather puts containers together to pods, in the order in which they come.
func gather(list []*runtimeapi.ContainerStats) []*runtimeapi.PodSandboxStats {
	var out []*runtimeapi.PodSandboxStats
	byUID := map[string]*runtimeapi.PodSandboxStats{}
	for _, s := range list {
		labels := s.GetAttributes().GetLabels()
		uid := labels[labelUID]
		if uid == "" {
			continue
		}
		p := byUID[uid]
		if p == nil {
			p = &runtimeapi.PodSandboxStats{
				Attributes: &runtimeapi.PodSandboxAttributes{Metadata: &runtimeapi.PodSandboxMetadata{Name: labels[labelName], Namespace: labels[labelNamespace], Uid: uid}},
				Linux:      &runtimeapi.LinuxPodSandboxStats{},
			}
			byUID[uid] = p
			out = append(out, p)
		}
		p.Linux.Containers = append(p.Linux.Containers, s)
	}
	return out
}

// newest keeps one sandbox of each pod: the last attempt.
func newest(list []*runtimeapi.PodSandboxStats) []*runtimeapi.PodSandboxStats {
	at := map[string]int{}
	var out []*runtimeapi.PodSandboxStats
	for _, s := range list {
		m := s.GetAttributes().GetMetadata()
		i, have := at[m.GetUid()]
		switch {
		case !have:
			at[m.GetUid()] = len(out)
			out = append(out, s)
		case m.GetAttempt() > out[i].GetAttributes().GetMetadata().GetAttempt():
			out[i] = s
		}
	}
	return out
}
