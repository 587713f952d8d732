package resources

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/agent"
	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/cgroups"
	"fairlead.run/internal/node/status"
)

// Settings are what flags say.
type Settings struct {
	Capacity capacity.Settings
	Cgroups  Cgroups
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
	Runtime cgroups.Runtime
	Folder  string // of pods; its file system is that of the node
	// Node is the object of the node, for its labels and taints; nil as long as there is
	// none.
	Node func() *corev1.Node
	// Manifests says that all pods come from manifests: there is no cluster.
	Manifests bool
	Log       *slog.Logger
}

// Pods are those of an agent.
type Pods interface {
	Pods() []*corev1.Pod
}

// Keeper keeps them. Make it by New.
type Keeper struct {
	cfg     Config
	node    capacity.Node
	cgroups *tree // nil if they are off
	stats   *metrics
}

// New looks at the machine, and makes the cgroups of all pods together.
func New(ctx context.Context, cfg Config) (*Keeper, error) {
	k := &Keeper{cfg: cfg, stats: newMetrics()}
	machine, err := capacity.Host{Proc: "/proc", Sys: "/sys", Folder: cfg.Folder}.Read()
	if err != nil {
		return nil, fmt.Errorf("find out what this machine has: %w", err)
	}
	if k.node, err = cfg.Capacity.Of(machine); err != nil {
		return nil, err
	}
	if cfg.Settings.Cgroups.Off {
		return k, nil
	}
	k.cgroups, err = newTree(ctx, cfg, k.node.Together)
	return k, err
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

// Run keeps the pods of an agent until ctx ends.
func (k *Keeper) Run(ctx context.Context, pods Pods) error {
	if k.cgroups != nil {
		k.cgroups.run(ctx, pods)
	}
	<-ctx.Done()
	return nil
}

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

// running are the pods that have not ended.
func running(pods Pods) []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range pods.Pods() {
		if !status.Terminal(p.Status.Phase) {
			out = append(out, p)
		}
	}
	return out
}
