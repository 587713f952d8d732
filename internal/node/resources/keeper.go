package resources

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/agent"
	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/cgroups"
	"fairlead.run/internal/node/eviction"
	"fairlead.run/internal/node/server/usage"
	"fairlead.run/internal/node/shutdown"
	"fairlead.run/internal/node/status"
	"fairlead.run/internal/node/volume/survey"
)

// Settings are what flags say.
type Settings struct {
	Capacity capacity.Settings // what is kept for evictions follows from these
	Cgroups  Cgroups
	Eviction Eviction
	Shutdown shutdown.Settings
}

// Eviction says when pods are evicted.
type Eviction struct {
	eviction.Settings
	Transition time.Duration // see eviction.Config
	MaxGrace   time.Duration
}

// Cgroups says how the cgroups of pods are kept.
type Cgroups struct {
	Off     bool           // leaves them to the runtime
	Driver  cgroups.Driver // of a runtime that does not say which it has
	Root    string         // cgroup that they are in; empty for the top
	PodPids int64          // processes that a pod may have; 0 for as many as it likes
	NoQuota bool           // without limits of processor time
}

// Config is what a Keeper works with.
type Config struct {
	Settings
	Runtime runtimeapi.RuntimeServiceClient
	Images  runtimeapi.ImageServiceClient
	Name    string                   // of the node
	Folder  string                   // of pods; its file system is that of the node
	Logs    func(*corev1.Pod) string // folder of the logs of a pod
	Tell    Tell
	// Node is the object of the node, for its labels and taints; nil as long as there is
	// none.
	Node func() *corev1.Node
	// Elsewhere says of a resource that somebody else gives it out; nil for none.
	Elsewhere func(corev1.ResourceName) bool
	// Manifests says that all pods come from manifests: there is no cluster.
	Manifests bool
	Log       *slog.Logger
}

// Tell is who is told. None of it may wait.
type Tell struct {
	// Evicted is a warning about a pod; the annotations of the event tell programs what the
	// message tells people.
	Evicted func(pod *corev1.Pod, message string, annotations map[string]string)
	Node    func(kind, reason, message string) // an event about the node
	// Changed is that Pressure or NotReady may be another.
	Changed func()
}

// Pods are those of an agent: see agent.Agent.
type Pods interface {
	Pods() []*corev1.Pod
	Evict(uid types.UID, grace int64, why agent.Refusal) bool
	Await(context.Context, types.UID) error
	Resume()
	Volumes(context.Context, survey.Ask) map[types.UID]survey.Pod
}

// Garbage gives disk back that nobody needs; see garbage.Collector.
type Garbage interface {
	DeleteUnusedContainers(context.Context) error
	DeleteUnusedImages(context.Context) (freed uint64, err error)
}

// Keeper keeps them. Make it by New.
type Keeper struct {
	cfg      Config
	node     capacity.Node
	cgroups  *tree // nil if they are off
	eviction *eviction.Manager
	shutdown *shutdown.Manager
	observer eviction.Observer
	blind    error                           // why the disks of the runtime are not known
	wake     chan struct{}                   // have the next look at the node now
	usage    atomic.Pointer[usage.Collector] // nil before Run
	stats    *metrics

	pressure atomic.Pointer[[]corev1.NodeConditionType]
	down     atomic.Bool

	// What Run was given.
	pods    Pods
	garbage Garbage
}

// New looks at the machine, and makes the cgroups of all pods together.
func New(ctx context.Context, cfg Config) (*Keeper, error) {
	k := &Keeper{cfg: cfg, stats: newMetrics(), wake: make(chan struct{}, 1)}
	machine, err := capacity.Host{Proc: "/proc", Sys: "/sys", Folder: cfg.Folder}.Read()
	if err != nil {
		return nil, fmt.Errorf("find out what this machine has: %w", err)
	}
	thresholds, err := cfg.Eviction.Parse()
	if err != nil {
		return nil, err
	}
	levels, err := cfg.Shutdown.Levels()
	if err != nil {
		return nil, err
	}
	cfg.Capacity.Evicted = eviction.Withheld(thresholds, machine)
	if k.node, err = cfg.Capacity.Of(machine); err != nil {
		return nil, err
	}
	if !cfg.Settings.Cgroups.Off {
		if k.cgroups, err = newTree(ctx, cfg, k.node.Together); err != nil {
			return nil, err
		}
	}
	images, layout := k.layout(ctx)
	k.observer = eviction.Observer{Proc: "/proc", Pids: machine.Pids, Nodefs: cfg.Folder, Imagefs: images}
	if k.cgroups != nil {
		k.observer.Pods, k.observer.Memory = k.cgroups.Top(), k.node.Together.Memory
	}
	k.eviction = eviction.New(eviction.Config{
		Thresholds: thresholds, Transition: cfg.Eviction.Transition, MaxGrace: cfg.Eviction.MaxGrace, Layout: layout, Wake: k.wake, Log: cfg.Log,
	}, evictor{k})
	k.shutdown = shutdown.New(shutdown.Config{Levels: levels, Log: cfg.Log}, downer{k})
	return k, nil
}

// Node is what pods may have.
func (k *Keeper) Node() capacity.Node { return k.node }

// Cgroups are those of pods, for an agent; nil if they are off.
func (k *Keeper) Cgroups() agent.Cgroups {
	if k.cgroups == nil {
		return nil
	}
	return k.cgroups
}

// CgroupName is the cgroup of all pods; empty if they have none.
func (k *Keeper) CgroupName() string {
	if k.cgroups == nil {
		return ""
	}
	return k.cgroups.Name()
}

// Pressure is what the node runs short of.
func (k *Keeper) Pressure() []corev1.NodeConditionType {
	if has := k.pressure.Load(); has != nil {
		return *has
	}
	return nil
}

// NotReady is why the node takes no pods.
func (k *Keeper) NotReady() []string {
	if k.down.Load() {
		return []string{shutdown.NodeMessage}
	}
	return nil
}

// Run keeps the pods of an agent until ctx ends.
func (k *Keeper) Run(ctx context.Context, pods Pods, garbage Garbage) error {
	k.pods, k.garbage = pods, garbage
	collector, err := usage.New(usage.Config{ // without volumes, for which evictions ask the pods
		NodeName: k.cfg.Name, Runtime: k.cfg.Runtime, Images: k.cfg.Images, Pods: pods.Pods, Root: k.cfg.Folder, Logs: k.cfg.Logs, Log: k.cfg.Log,
	})
	if err != nil {
		return err
	}
	k.usage.Store(collector)
	k.tellBlind()
	var all sync.WaitGroup
	defer all.Wait()
	if k.cgroups != nil {
		all.Go(func() { k.cgroups.run(ctx, pods, k.cfg.Tell) })
	}
	all.Go(func() { _ = k.eviction.Run(ctx) }) // it ends with ctx alone, as does the next
	all.Go(func() { _ = k.shutdown.Run(ctx) })
	all.Go(func() { k.hear(ctx) })
	all.Go(func() {
		if err := (eviction.Pressure{File: pressureFile, Wake: k.wake}).Run(ctx); err != nil && ctx.Err() == nil {
			k.cfg.Log.Info("the node is looked at each few seconds, and not when its memory runs out", "error", err)
		}
	})
	<-ctx.Done()
	return nil
}

// RuntimeDisksUnknown is the reason of an event of the node.
const RuntimeDisksUnknown = "RuntimeDisksUnknown"

// tellBlind tells that the disks of the runtime are not known. Nobody could be told when that
// was found out.
func (k *Keeper) tellBlind() {
	if k.blind == nil {
		return
	}
	k.cfg.Log.Warn("the disks of the runtime are not known, and count as that of the node", "error", k.blind)
	k.cfg.Tell.Node(corev1.EventTypeWarning, RuntimeDisksUnknown, "The runtime did not say which disks its images and containers are on, so that evictions and the removal of images go by the disk of the node alone; "+
		"mend that and start the agent again, which leaves pods as they are: "+k.blind.Error())
}

// pressureFile tells when processes wait for memory.
const pressureFile = "/proc/pressure/memory"

// Close removes what is of no use without pods, if there are none.
func (k *Keeper) Close() {
	if k.cgroups == nil {
		return
	}
	if left, err := k.cgroups.Pods(); err != nil || len(left) > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := k.cgroups.Clear(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		k.cfg.Log.Debug("cgroups without pods stay", "error", err)
	}
}

type lister interface{ Pods() []*corev1.Pod }

// running are the pods that have not ended.
func running(pods lister) []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range pods.Pods() {
		if !status.Terminal(p.Status.Phase) {
			out = append(out, p)
		}
	}
	return out
}
