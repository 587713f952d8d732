package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	config "fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/cgroups"
	"fairlead.run/internal/node/eviction"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/resources"
	"fairlead.run/internal/node/shutdown"
)

// roomFlags say what pods may have, by the names that a kubelet has for them.
type roomFlags struct {
	system, kube        map[string]string
	maxPods, podsPerCPU int
	swapBehavior        string
	cgroups             cgroupFlags
	eviction            evictionFlags
	shutdown            shutdown.Settings
	byPriority          map[string]string // periods of a shutdown
}

// evictionFlags say when pods are evicted.
type evictionFlags struct {
	hard, soft, grace, reclaim string
	transition                 time.Duration
	maxGrace                   int
}

// cgroupFlags say how the cgroups of pods are kept.
type cgroupFlags struct {
	perQOS, quota bool
	root, driver  string
	podPids       int64
}

func (f *roomFlags) add(cmd *cobra.Command) {
	s := cmd.Flags()
	s.StringToStringVar(&f.system, "system-reserved", nil, "what is kept for the services of the machine: cpu=500m,memory=1Gi")
	s.StringToStringVar(&f.kube, "kube-reserved", nil, "what is kept for the agent and the runtime")
	s.IntVar(&f.maxPods, "max-pods", capacity.DefaultPods, "pods that the node takes")
	s.IntVar(&f.podsPerCPU, "pods-per-core", 0, "pods that the node takes for each processor, up to --max-pods; 0 for no such limit")
	s.BoolVar(&f.cgroups.perQOS, "cgroups-per-qos", true, "keep pods in cgroups by their class of service, each with its limits; else the runtime puts them where it likes")
	s.StringVar(&f.cgroups.root, "cgroup-root", "", "cgroup that those of pods are in (default the top for a node, and /fairlead for fairlead up)")
	s.StringVar(&f.cgroups.driver, "cgroup-driver", "", "cgroupfs or systemd, for a runtime that does not say which it uses (default that of the configuration, else cgroupfs)")
	s.Int64Var(&f.cgroups.podPids, "pod-max-pids", -1, "processes that a pod may have; -1 for as many as it likes")
	s.BoolVar(&f.cgroups.quota, "cpu-cfs-quota", true, "hold pods to their limits of processor time")
	s.StringVar(&f.swapBehavior, "swap-behavior", noSwap, "NoSwap, or LimitedSwap for containers of burstable pods to have a share of the node's swap in proportion to the memory that they ask for; that needs cgroups v2")
	f.addEviction(cmd)
}

// What pods may have of the node's swap, as a kubelet calls it.
const (
	noSwap      = "NoSwap"
	limitedSwap = "LimitedSwap"
)

// shareSwap has containers use the node's swap, if that is asked for.
func (f *roomFlags) shareSwap(node *podspec.Node) error {
	switch {
	case f.swapBehavior == noSwap:
		return nil
	case f.swapBehavior != limitedSwap:
		return usageError{fmt.Errorf("--swap-behavior %q is not one of %s, %s", f.swapBehavior, noSwap, limitedSwap)}
	case !node.Swap.Counted:
		return fmt.Errorf("--swap-behavior %s: the kernel of this node does not count the swap of cgroups, which needs cgroups v2 alone and memory.swap.max in them; leave the flag out: %w", limitedSwap, errdefs.ErrPrecondition)
	}
	node.Swap.Limited = true
	return nil
}

func (f *roomFlags) addEviction(cmd *cobra.Command) {
	s := cmd.Flags()
	s.StringVar(&f.eviction.hard, "eviction-hard", hardByDefault(), "what has to be left, before pods are evicted at once; empty for nothing")
	s.StringVar(&f.eviction.soft, "eviction-soft", "", "what has to be left, before pods are evicted after a time: memory.available<300Mi")
	s.StringVar(&f.eviction.grace, "eviction-soft-grace-period", "", "that time for each of them: memory.available=1m30s")
	s.IntVar(&f.eviction.maxGrace, "eviction-max-pod-grace-period", 0, "seconds that a pod may take to end that is evicted so, up to its own")
	s.StringVar(&f.eviction.reclaim, "eviction-minimum-reclaim", "", "how much more is to be left in the end: nodefs.available=500Mi")
	s.DurationVar(&f.eviction.transition, "eviction-pressure-transition-period", eviction.DefaultTransition, "how long the node still says that it is short of something after it was")
	s.DurationVar(&f.shutdown.Period, "shutdown-grace-period", 0, "how long a shutdown of the machine waits for pods; 0 for not at all. It needs systemd-logind")
	s.StringToStringVar(&f.byPriority, byPriorityFlag, nil, "in the place of these, how long a shutdown waits for pods of a priority and above: 0=30s,2000000000=10s")
	s.DurationVar(&f.shutdown.Critical, "shutdown-grace-period-critical-pods", 0, "how much of that is for critical pods, which end after the others")
}

// hardByDefault is written as the flag is.
func hardByDefault() string {
	var out []string
	for _, signal := range slices.Sorted(maps.Keys(eviction.DefaultHard)) {
		out = append(out, signal+"<"+eviction.DefaultHard[signal])
	}
	return strings.Join(out, ",")
}

func (f *evictionFlags) settings() (resources.Eviction, error) {
	out := resources.Eviction{Transition: f.transition, MaxGrace: time.Duration(f.maxGrace) * time.Second}
	for _, flag := range []struct {
		name, text, operator string
		to                   *map[string]string
	}{
		{"eviction-hard", f.hard, "<", &out.Hard},
		{"eviction-soft", f.soft, "<", &out.Soft},
		{"eviction-soft-grace-period", f.grace, "=", &out.SoftGrace},
		{"eviction-minimum-reclaim", f.reclaim, "=", &out.MinimumReclaim},
	} {
		list, err := eviction.ParseList(flag.text, flag.operator)
		if err != nil {
			return out, usageError{fmt.Errorf("--%s: %w", flag.name, err)}
		}
		*flag.to = list
	}
	if _, err := out.Parse(); err != nil {
		return out, usageError{err}
	}
	return out, nil
}

func (f *roomFlags) settings(cfg *config.Config) (resources.Settings, error) {
	out := resources.Settings{
		Capacity: capacity.Settings{MaxPods: f.maxPods, PodsPerCPU: f.podsPerCPU},
		Cgroups:  resources.Cgroups{Off: !f.cgroups.perQOS, Root: f.cgroups.root, PodPids: max(f.cgroups.podPids, 0), NoQuota: !f.cgroups.quota},
	}
	driver := f.cgroups.driver
	if driver == "" {
		driver = cfg.Cgroup.Driver
	}
	if driver == "" {
		driver = string(cgroups.Cgroupfs)
	}
	var err error
	if out.Eviction, err = f.eviction.settings(); err != nil {
		return out, err
	}
	out.Shutdown = f.shutdown
	if out.Shutdown.ByPriority, err = levels(f.byPriority); err != nil {
		return out, usageError{fmt.Errorf("--%s: %w", byPriorityFlag, err)}
	}
	if _, err := out.Shutdown.Levels(); err != nil {
		return out, usageError{err}
	}
	if out.Cgroups.Driver, err = cgroups.ParseDriver(driver); err != nil {
		return out, usageError{fmt.Errorf("--cgroup-driver: %w", err)}
	}
	if out.Capacity.SystemReserved, err = capacity.ParseReserved(f.system); err != nil {
		return out, usageError{fmt.Errorf("--system-reserved: %w", err)}
	}
	if out.Capacity.KubeReserved, err = capacity.ParseReserved(f.kube); err != nil {
		return out, usageError{fmt.Errorf("--kube-reserved: %w", err)}
	}
	return out, nil
}

const byPriorityFlag = "shutdown-grace-period-by-pod-priority"

// levels are periods of a shutdown by their priorities.
func levels(periods map[string]string) ([]shutdown.Level, error) {
	var out []shutdown.Level
	for priority, text := range periods {
		number, err := strconv.ParseInt(priority, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %q is no priority, which is a whole number of 32 bits", priority, text, priority)
		}
		period, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %q is no time; write 30s or 2m", priority, text, text)
		}
		out = append(out, shutdown.Level{Priority: int32(number), Period: period})
	}
	return out, nil
}
