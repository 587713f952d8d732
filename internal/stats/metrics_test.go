package stats

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	config "fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// detailed1 and detailed2 are what metrics need beside version1 and version2.
var (
	detailed1 = map[string]string{
		"cpuacct/pods/a/cpuacct.usage":                           "7900000000\n",
		"cpuacct/pods/a/cpuacct.stat":                            "user 550\nsystem 199\n",
		"cpu/pods/a/cpu.stat":                                    "nr_periods 11\nnr_throttled 3\nthrottled_time 2500000000\n",
		"memory/pods/a/memory.stat":                              "cache 1\nmapped_file 2\npgfault 30\npgmajfault 4\ntotal_cache 500000\ntotal_mapped_file 6000\ntotal_rss 400000\ntotal_inactive_file 300000\ntotal_pgfault 1100\ntotal_pgmajfault 100\n",
		"memory/pods/a/memory.failcnt":                           "9\n",
		"memory/pods/a/memory.oom_control":                       "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
		"memory/pods/a/memory.kmem.usage_in_bytes":               "70000\n",
		"memory/pods/a/memory.max_usage_in_bytes":                "1900000\n",
		"blkio/pods/a/blkio.throttle.io_service_bytes_recursive": "9999:1 Read 512\n9999:1 Write 1024\n9999:1 Sync 3\n9999:1 Total 1536\nTotal 1536\n",
		"blkio/pods/a/blkio.throttle.io_serviced_recursive":      "9999:1 Read 5\n9999:1 Write 6\n9999:1 Total 11\nTotal 11\n",
		"hugetlb/pods/a/hugetlb.2MB.usage_in_bytes":              "2097152\n",
		"hugetlb/pods/a/hugetlb.2MB.max_usage_in_bytes":          "4194304\n",
		"pids/pods/a/pids.max":                                   "max\n",
		"pids/pods/a/cgroup.procs":                               "PID\n",
		"unified/pods/a/cpu.pressure":                            "some avg10=0.00 avg60=0.00 avg300=0.00 total=3900000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\n",
	}
	detailed2 = map[string]string{
		"pods/a/cpu.stat":            "usage_usec 7900000\nuser_usec 5500000\nsystem_usec 1990000\nnr_periods 11\nnr_throttled 3\nthrottled_usec 2500000\n",
		"pods/a/memory.stat":         "anon 400000\nfile 500000\nkernel 70000\nfile_mapped 6000\ninactive_file 300000\npgfault 1100\npgmajfault 100\n",
		"pods/a/memory.peak":         "1900000\n",
		"pods/a/memory.events":       "low 0\nhigh 0\nmax 9\noom 2\noom_kill 2\n",
		"pods/a/io.stat":             "9999:1 rbytes=512 wbytes=1024 rios=5 wios=6 dbytes=0 dios=0\n",
		"pods/a/hugetlb.2MB.current": "2097152\n",
		"pods/a/pids.max":            "max\n",
		"pods/a/cgroup.procs":        "",
		"pods/a/below/cgroup.procs":  "PID\n",
		"pods/a/cpu.pressure":        "some avg10=0.00 avg60=0.00 avg300=0.00 total=3900000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\n",
	}
)

// both joins the files of a host and makes the test's own process the container's.
func both(files ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, f := range files {
		maps.Copy(out, f)
	}
	for name, text := range out {
		out[name] = strings.ReplaceAll(text, "PID", strconv.Itoa(os.Getpid()))
	}
	return out
}

// measured is what was measured, as text: "name{labels}" to the value.
func measured(m pod.Metrics) map[string]uint64 {
	out := map[string]uint64{}
	for _, v := range m.Values {
		key := strings.TrimPrefix(v.Family.Name, "container_")
		if len(v.Labels) > 0 {
			key += "{" + strings.Join(v.Labels, ",") + "}"
		}
		if _, twice := out[key]; twice || len(v.Labels) != len(v.Family.Labels) {
			key += " twice, or with other labels than its family"
		}
		out[key] = v.Value
	}
	return out
}

func metricsHost(t *testing.T, files map[string]string) *Meter {
	m, root := host(t, files)
	m.cfg.LayerPath, m.layerDevice = root, "disk"
	m.cgroups.pageSizes = []string{"2MB"}
	m.layers = newLayers(func(context.Context, pod.ContainerID) (int64, int64, error) { return 4096, 3, nil }, root, m.cfg.Log)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = m.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return m
}

func one(t *testing.T, m *Meter, c *pod.Container) pod.Metrics {
	t.Helper()
	out := m.MetricsOf(t.Context(), []pod.Subject{{Pod: &pod.Record{}, Container: c}})
	if len(out) != 1 || out[0].Err != nil {
		t.Fatalf("%+v", out)
	}
	return out[0]
}

func TestMetricsOfAContainer(t *testing.T) {
	want := map[string]uint64{
		"cpu_usage_seconds_total{total}": 7, "cpu_user_seconds_total": 5, "cpu_system_seconds_total": 1,
		"cpu_cfs_periods_total": 11, "cpu_cfs_throttled_periods_total": 3, "cpu_cfs_throttled_seconds_total": 2,
		"memory_usage_bytes": 1_000_000, "memory_max_usage_bytes": 1_900_000, "memory_working_set_bytes": 700_000,
		"memory_rss": 400_000, "memory_cache": 500_000, "memory_mapped_file": 6000, "memory_kernel_usage": 70_000, "memory_swap": 5000,
		"memory_failcnt": 9,
		"memory_failures_total{pgfault,container}": 1100, "memory_failures_total{pgmajfault,container}": 100,
		"memory_failures_total{pgfault,hierarchy}": 1100, "memory_failures_total{pgmajfault,hierarchy}": 100,
		"fs_usage_bytes{disk}":   4096,
		"fs_reads_total{9999:1}": 5, "fs_reads_bytes_total{9999:1}": 512, "fs_writes_total{9999:1}": 6, "fs_writes_bytes_total{9999:1}": 1024,
		"blkio_device_usage_total{9999:1,9999,1,Read}": 512, "blkio_device_usage_total{9999:1,9999,1,Write}": 1024,
		"hugetlb_usage_bytes{2MB}": 2 << 20,
		"processes":                1, "threads": 7, "threads_max": 0,
		"pressure_cpu_waiting_seconds_total": 3, "pressure_cpu_stalled_seconds_total": 1,
		"pressure_memory_waiting_seconds_total": 1, "pressure_memory_stalled_seconds_total": 0,
		"pressure_io_waiting_seconds_total": 1, "pressure_io_stalled_seconds_total": 0,
		"spec_cpu_period": 100_000, "spec_cpu_quota": 20_000, "spec_cpu_shares": 512, "spec_memory_limit_bytes": 4000,
		"spec_memory_reservation_limit_bytes": 77, "spec_memory_swap_limit_bytes": 1000,
		"start_time_seconds": 1_700_000_000, "oom_events_total": 2,
	}
	want1 := maps.Clone(want)
	want1["hugetlb_max_usage_bytes{2MB}"] = 4 << 20
	want1["memory_failures_total{pgfault,container}"], want1["memory_failures_total{pgmajfault,container}"] = 30, 4
	want1["spec_memory_swap_limit_bytes"] = 5000
	c := &pod.Container{
		ID: "a", StartedAt: time.Unix(1_700_000_000, 5), Process: &pod.RunningProcess{PID: os.Getpid()},
		Config: pod.ContainerConfig{Resources: &pod.Resources{
			CPUQuota: 20_000, CPUShares: 512, MemoryLimit: 4000, MemorySwapLimit: 5000, Unified: map[string]string{"memory.low": "77"},
		}},
	}
	for name, tt := range map[string]struct{ files, want map[string]string }{
		"v1": {both(version1, detailed1), nil}, "v2": {both(version2, detailed2), nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := metricsHost(t, tt.files)
			got := measured(one(t, m, c))
			// These depend on the machine and the time.
			for _, key := range []string{"last_seen", "file_descriptors", "ulimits_soft{max_open_files}", "fs_limit_bytes{disk}", "fs_inodes_total{disk}"} {
				if got[key] == 0 {
					t.Errorf("%s is 0 or missing", key)
				}
				delete(got, key)
			}
			if _, there := got["fs_inodes_free{disk}"]; !there || got["sockets"] > 1<<10 {
				t.Errorf("free inodes or sockets: %v", got)
			}
			delete(got, "fs_inodes_free{disk}")
			delete(got, "sockets")
			w := want
			if name == "v1" {
				w = want1
			}
			if diff := cmp.Diff(w, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The first who asks gets what the first walk finds.
func TestMetricsWaitForTheFirstWalk(t *testing.T) {
	m, _ := host(t, both(version2, detailed2))
	before := time.Now()
	if _, there := measured(one(t, m, &pod.Container{ID: "a"}))["fs_usage_bytes{}"]; there {
		t.Error("nobody has walked, and there is a size")
	}
	if time.Since(before) < firstWalks {
		t.Error("nobody waited for a walk")
	}
}

// Where the kernel counts, none is a number; where it does not, nothing is.
func TestMetricsWithoutTransfers(t *testing.T) {
	files := both(version2, detailed2)
	files["pods/a/io.stat"] = ""
	got := measured(one(t, metricsHost(t, files), &pod.Container{ID: "a"}))
	if n, there := got["fs_reads_total{}"]; !there || n != 0 {
		t.Errorf("no device was used: %v", got)
	}
	delete(files, "pods/a/io.stat")
	got = measured(one(t, metricsHost(t, files), &pod.Container{ID: "a"}))
	if _, there := got["fs_reads_total{}"]; there {
		t.Errorf("the kernel does not count: %v", got)
	}
}

func TestMetricsOfAPod(t *testing.T) {
	m, _ := host(t, version2)
	link := pod.InterfaceUsage{Name: "eth0", RxBytes: 1, RxPackets: 2, RxDropped: 3, RxError: 4, TxBytes: 5, TxPackets: 6, TxDropped: 7, TxError: 8}
	m.cfg.Interfaces = func(string) ([]pod.InterfaceUsage, error) { return []pod.InterfaceUsage{link}, nil }
	r := &pod.Record{ID: "pod", Sandbox: pod.Sandbox{NetNS: "/netns"}}
	out := m.MetricsOf(t.Context(), []pod.Subject{{Pod: r}, {Pod: &pod.Record{ID: "host"}}, {Pod: r, Container: &pod.Container{ID: "gone"}}})
	want := map[string]uint64{
		"network_receive_bytes_total{eth0}": 1, "network_receive_packets_total{eth0}": 2,
		"network_receive_packets_dropped_total{eth0}": 3, "network_receive_errors_total{eth0}": 4,
		"network_transmit_bytes_total{eth0}": 5, "network_transmit_packets_total{eth0}": 6,
		"network_transmit_packets_dropped_total{eth0}": 7, "network_transmit_errors_total{eth0}": 8,
	}
	if diff := cmp.Diff(want, measured(out[0])); diff != "" || out[0].Cgroup != "/pods" || out[0].Err != nil {
		t.Errorf("%+v %s", out[0], diff)
	}
	if out[1].Err != nil || len(out[1].Values) != 0 {
		t.Errorf("on the node's network: %+v", out[1])
	}
	if !errors.Is(out[2].Err, errdefs.ErrNotFound) {
		t.Errorf("one that has ended: %+v", out[2])
	}
	m.cfg.Interfaces = func(string) ([]pod.InterfaceUsage, error) { return nil, errdefs.ErrNotFound }
	if out := m.MetricsOf(t.Context(), []pod.Subject{{Pod: r}}); !errors.Is(out[0].Err, errdefs.ErrNotFound) {
		t.Errorf("stopped: %+v", out[0])
	}
}

// Each group that the configuration knows can be had alone, and nothing else.
func TestGroupsOfMetrics(t *testing.T) {
	of := map[string]string{}
	for g, all := range familiesOf {
		for _, f := range all {
			of[f.Name] = g
		}
	}
	if len(of) != 56 || len(familiesOf) != len(config.MetricGroups()) {
		t.Errorf("%d families in %d groups", len(of), len(familiesOf))
	}
	for _, g := range config.MetricGroups() {
		m := metricsHost(t, both(version1, detailed1))
		var err error
		if m.families, err = newFamilies([]string{g, g}); err != nil || len(m.Families()) != len(familiesOf[g]) {
			t.Fatalf("%s: %v", g, err)
		}
		for _, v := range one(t, m, &pod.Container{ID: "a"}).Values {
			if of[v.Family.Name] != g {
				t.Errorf("group %s has %s", g, v.Family.Name)
			}
		}
	}
	if _, err := newFamilies([]string{"cpus"}); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Error(err)
	}
}

func TestPageSizes(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"hugepages-64kB", "hugepages-2048kB", "hugepages-1048576kB", "other"} {
		write(t, dir, map[string]string{name + "/nr_hugepages": "0\n"})
	}
	got := fmt.Sprint(findPageSizes(dir))
	if got != "[1GB 2MB 64KB]" {
		t.Error(got)
	}
	if findPageSizes(dir+"/none") != nil {
		t.Error("sizes without a folder")
	}
}
