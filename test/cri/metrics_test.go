package cri

import (
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// metricsOf are the metrics of a pod and its containers, as a kubelet joins them
// with their descriptors: "name{key=value,...}" without whose they are.
func metricsOf(s *node.Sandbox) (of map[string]map[string]uint64, families map[string]bool) {
	n := s.Node
	n.T.Helper()
	d, err := n.Runtime.ListMetricDescriptors(n.Ctx(), &runtimeapi.ListMetricDescriptorsRequest{})
	if err != nil {
		n.T.Fatal(err)
	}
	keys := map[string][]string{}
	families = map[string]bool{}
	for _, one := range d.Descriptors {
		keys[one.Name] = one.LabelKeys
		families[one.Name] = true
	}
	l, err := n.Runtime.ListPodSandboxMetrics(n.Ctx(), &runtimeapi.ListPodSandboxMetricsRequest{})
	if err != nil {
		n.T.Fatal(err)
	}
	of = map[string]map[string]uint64{}
	add := func(of map[string]uint64, all []*runtimeapi.Metric) {
		for _, m := range all {
			k := keys[m.Name]
			if len(k) != len(m.LabelValues) {
				n.T.Fatalf("%s has labels %q, and %q are described", m.Name, m.LabelValues, k)
			}
			var labels []string
			for i, v := range m.LabelValues {
				switch k[i] {
				case "id", "name", "image", "container", "pod", "namespace":
				default:
					labels = append(labels, k[i]+"="+v)
				}
			}
			name := m.Name
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			if _, twice := of[name]; twice {
				n.T.Errorf("%s is there twice", name)
			}
			of[name] = m.Value.GetValue()
		}
	}
	for _, p := range l.PodMetrics {
		if p.PodSandboxId != s.ID {
			continue
		}
		of[p.PodSandboxId] = map[string]uint64{}
		add(of[p.PodSandboxId], p.Metrics)
		for _, c := range p.ContainerMetrics {
			of[c.ContainerId] = map[string]uint64{}
			add(of[c.ContainerId], c.Metrics)
		}
	}
	return of, families
}

func TestMetrics(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		cfg := node.Script("x=$(head -c 8000000 /dev/zero | tr '\\0' x); head -c 5000000 /dev/zero > /file; sync; (while :; do :; done) & echo done; wait")
		limited(&runtimeapi.LinuxContainerResources{
			CpuPeriod: 100_000, CpuQuota: 50_000, CpuShares: 512, MemoryLimitInBytes: memoryOf, MemorySwapLimitInBytes: memoryOf,
		})(cfg)
		c, idle := s.Start(cfg), s.Start(node.Script("sleep 1000"))
		node.Eventually(t, "the container has worked", func() bool { return strings.Contains(c.Log(), "done") })
		var all map[string]map[string]uint64
		var families map[string]bool
		node.Eventually(t, "the layer was walked, and a second of work", func() bool {
			all, families = metricsOf(s)
			for name, v := range all[c.ID] {
				if strings.HasPrefix(name, "container_fs_usage_bytes") {
					return v > 5_000_000 && all[c.ID]["container_cpu_usage_seconds_total{cpu=total}"] > 0
				}
			}
			return false
		})
		of, now := all[c.ID], uint64(time.Now().Unix())
		for _, tt := range []struct {
			name     string
			from, to uint64
		}{
			{"container_cpu_usage_seconds_total{cpu=total}", 1, 600},
			{"container_cpu_cfs_periods_total", 5, 10_000},
			{"container_cpu_cfs_throttled_periods_total", 0, 10_000}, // a busy machine throttles by itself
			{"container_memory_usage_bytes", 8_000_000, memoryOf},
			{"container_memory_max_usage_bytes", 8_000_000, memoryOf},
			{"container_memory_rss", 8_000_000, memoryOf},
			{"container_memory_failures_total{failure_type=pgfault,scope=hierarchy}", 100, 1 << 30},
			{"container_processes", 2, 3},
			{"container_threads", 2, 3},
			{"container_file_descriptors", 3, 100},
			{"container_ulimits_soft{ulimit=max_open_files}", 64, 1 << 40},
			{"container_spec_cpu_period", 100_000, 100_000},
			{"container_spec_cpu_quota", 50_000, 50_000},
			{"container_spec_cpu_shares", 512, 512},
			{"container_spec_memory_limit_bytes", memoryOf, memoryOf},
			{"container_start_time_seconds", now - 600, now},
			{"container_last_seen", now - 60, now + 60},
			{"container_oom_events_total", 0, 0},
		} {
			if v, there := of[tt.name]; !there || v < tt.from || v > tt.to {
				t.Errorf("%s is %d (there: %v), want %d to %d", tt.name, v, there, tt.from, tt.to)
			}
		}
		if v := all[idle.ID]["container_memory_rss"]; v >= 8_000_000 {
			t.Errorf("the idle container has %d bytes", v)
		}
		for name := range all[s.ID] {
			if !strings.HasPrefix(name, "container_network_") {
				t.Errorf("the pod has %s", name)
			}
		}
		if all[s.ID]["container_network_transmit_packets_total{interface=eth0}"] == 0 {
			t.Errorf("the pod has sent nothing: %v", all[s.ID])
		}
		for name := range families {
			if !found(name, of) && !found(name, all[s.ID]) && !mayLack(name) {
				t.Errorf("nothing has %s", name)
			}
		}
		s.Remove()
	})
}

func found(family string, in map[string]uint64) bool {
	for name := range in {
		if name == family || strings.HasPrefix(name, family+"{") {
			return true
		}
	}
	return false
}

// mayLack are the families that depend on the kernel and its controllers.
func mayLack(name string) bool {
	for _, prefix := range []string{"container_pressure_", "container_hugetlb_", "container_blkio_", "container_fs_", "container_memory_swap"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// A node with many containers may leave out what nobody reads.
func TestGroupsOfMetrics(t *testing.T) {
	n := node.Start(t, "[stats]\nmetrics = [\"memory\"]\n")
	n.Pull(node.Busybox)
	s := n.RunPod("crun")
	c := s.Start(node.Script("sleep 1000"))
	all, families := metricsOf(s)
	for name := range families {
		if !strings.HasPrefix(name, "container_memory_") {
			t.Errorf("%s is described", name)
		}
	}
	for name := range all[c.ID] {
		if !strings.HasPrefix(name, "container_memory_") {
			t.Errorf("%s is there", name)
		}
	}
	if all[c.ID]["container_memory_usage_bytes"] == 0 || len(all[s.ID]) != 0 {
		t.Errorf("%v", all)
	}
}
