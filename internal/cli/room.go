package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	config "fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/cgroups"
	"fairlead.run/internal/node/resources"
)

// roomFlags say what pods may have, by the names that a kubelet has for them.
type roomFlags struct {
	system, kube        map[string]string
	maxPods, podsPerCPU int
	cgroups             cgroupFlags
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
