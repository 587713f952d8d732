package usage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Cadvisor writes the metrics that are scraped from a kubelet at
// /metrics/cadvisor: those of containers come from the runtime, under the names
// and with the labels that it gives them (KEP 2371); those of the machine and of
// its root cgroup are found here. A runtime without such metrics has the few that
// its stats are enough for.
func (c *Collector) Cadvisor(ctx context.Context, w io.Writer) error {
	f, failed := families{}, 0.0
	c.machineFacts(f)
	err := c.runtimeMetrics(ctx, f)
	if status.Code(err) == codes.Unimplemented {
		err = c.statsAsMetrics(ctx, f)
	}
	if err != nil {
		c.cfg.Log.Warn("metrics of cAdvisor lack the containers", "error", err)
		failed = 1
	}
	f.add(about{"container_scrape_error", gaugeKind, "1 if there was an error while getting metrics of containers, 0 otherwise."}, float(failed))
	return f.write(w)
}

// runtimeMetrics takes the metrics of the runtime as they are.
func (c *Collector) runtimeMetrics(ctx context.Context, f families) error {
	resp, err := c.cfg.Runtime.ListMetricDescriptors(ctx, &runtimeapi.ListMetricDescriptorsRequest{})
	if err != nil {
		return fmt.Errorf("ask the runtime which metrics it has: %w", err)
	}
	t := teller{families: f, about: map[string]*runtimeapi.MetricDescriptor{}}
	for _, d := range resp.GetDescriptors() {
		t.about[d.GetName()] = d
	}
	err = c.eachSandbox(ctx, func(p *runtimeapi.PodSandboxMetrics) {
		t.tell(p.GetMetrics())
		for _, ctr := range p.GetContainerMetrics() {
			t.tell(ctr.GetMetrics())
		}
	})
	if err != nil {
		return fmt.Errorf("ask the runtime for its metrics: %w", err)
	}
	return nil
}

// eachSandbox asks by a stream, which no message limits, or else by a list.
func (c *Collector) eachSandbox(ctx context.Context, each func(*runtimeapi.PodSandboxMetrics)) error {
	stream, err := c.cfg.Runtime.StreamPodSandboxMetrics(ctx, &runtimeapi.StreamPodSandboxMetricsRequest{})
	for err == nil {
		var part *runtimeapi.StreamPodSandboxMetricsResponse
		if part, err = stream.Recv(); err != nil {
			break
		}
		for _, p := range part.GetPodSandboxMetrics() {
			each(p)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	if status.Code(err) != codes.Unimplemented {
		return err
	}
	list, err := c.cfg.Runtime.ListPodSandboxMetrics(ctx, &runtimeapi.ListPodSandboxMetricsRequest{})
	for _, p := range list.GetPodMetrics() {
		each(p)
	}
	return err
}

// teller writes metrics of a runtime.
type teller struct {
	families families
	about    map[string]*runtimeapi.MetricDescriptor
	labels   []string
}

// tell leaves out what no descriptor fits, because its labels are not known.
func (t *teller) tell(list []*runtimeapi.Metric) {
	for _, m := range list {
		d := t.about[m.GetName()]
		if d == nil || len(d.GetLabelKeys()) != len(m.GetLabelValues()) || m.GetValue() == nil {
			continue
		}
		kind := gaugeKind
		if m.GetMetricType() == runtimeapi.MetricType_COUNTER {
			kind = counterKind
		}
		t.labels = t.labels[:0]
		for i, key := range d.GetLabelKeys() {
			t.labels = append(t.labels, key, m.GetLabelValues()[i])
		}
		t.families.add(about{m.GetName(), kind, d.GetHelp()}, whole(m.GetValue().GetValue()).measured(m.GetTimestamp()), t.labels...)
	}
}

// labelsOf are those that cAdvisor gives to everything of a container. Its id stands
// for the name that it has at the runtime, too.
func labelsOf(container, id, image string, pod *runtimeapi.PodSandboxMetadata) []string {
	return []string{"container", container, "id", id, "image", image, "name", id, "namespace", pod.GetNamespace(), "pod", pod.GetName()}
}

// statsAsMetrics makes metrics of stats.
func (c *Collector) statsAsMetrics(ctx context.Context, f families) error {
	list, err := c.pods(ctx)
	if err != nil {
		return err
	}
	images := map[containerOf]string{}
	for _, p := range c.cfg.Pods() {
		for _, name := range containerNames(p) {
			if s := statusOf(p, name); s != nil {
				images[containerOf{string(p.UID), name}] = s.Image
			}
		}
	}
	for _, p := range newest(list) {
		m := p.GetAttributes().GetMetadata()
		for _, ctr := range p.GetLinux().GetContainers() {
			a := ctr.GetAttributes()
			name := a.GetMetadata().GetName()
			containerLines(f, ctr, labelsOf(name, a.GetId(), images[containerOf{m.GetUid(), name}], m))
		}
		networkLines(f, p)
	}
	return nil
}

func containerLines(f families, c *runtimeapi.ContainerStats, labels []string) {
	memory := c.GetMemory()
	if v := number(c.GetCpu().GetUsageCoreNanoSeconds()); v != nil {
		f.add(about{"container_cpu_usage_seconds_total", counterKind, cpuHelp}, seconds(*v).measured(c.GetCpu().GetTimestamp()), append([]string{"cpu", "total"}, labels...)...)
	}
	for _, g := range []struct {
		name, help string
		value      *runtimeapi.UInt64Value
		at         int64
	}{
		{"container_memory_working_set_bytes", workingSetHelp, memory.GetWorkingSetBytes(), memory.GetTimestamp()},
		{"container_memory_usage_bytes", usageHelp, memory.GetUsageBytes(), memory.GetTimestamp()},
		{"container_memory_rss", rssHelp, memory.GetRssBytes(), memory.GetTimestamp()},
		{"container_memory_swap", "Swap in use, in bytes.", c.GetSwap().GetSwapUsageBytes(), c.GetSwap().GetTimestamp()},
		{"container_fs_usage_bytes", "What the container has written to its root file system, in bytes.", c.GetWritableLayer().GetUsedBytes(), c.GetWritableLayer().GetTimestamp()},
	} {
		if v := number(g.value); v != nil {
			f.add(about{g.name, gaugeKind, g.help}, whole(*v).measured(g.at), labels...)
		}
	}
}

func networkLines(f families, p *runtimeapi.PodSandboxStats) {
	n := p.GetLinux().GetNetwork()
	list := n.GetInterfaces()
	if len(list) == 0 && n.GetDefaultInterface() != nil {
		list = []*runtimeapi.NetworkInterfaceUsage{n.GetDefaultInterface()}
	}
	for _, i := range list {
		labels := append([]string{"interface", i.GetName()}, labelsOf("POD", p.GetAttributes().GetId(), "", p.GetAttributes().GetMetadata())...)
		for _, g := range []struct {
			name, help string
			value      *runtimeapi.UInt64Value
		}{
			{"receive_bytes", "Bytes received.", i.GetRxBytes()},
			{"receive_errors", "Errors while receiving.", i.GetRxErrors()},
			{"transmit_bytes", "Bytes sent.", i.GetTxBytes()},
			{"transmit_errors", "Errors while sending.", i.GetTxErrors()},
		} {
			if v := number(g.value); v != nil {
				f.add(about{"container_network_" + g.name + "_total", counterKind, g.help}, whole(*v).measured(n.GetTimestamp()), labels...)
			}
		}
	}
}

const (
	cpuHelp        = "Processor time used, in seconds."
	workingSetHelp = "Memory in use without the files that nobody has used lately, in bytes."
	usageHelp      = "Memory in use, the page cache included, in bytes."
	rssHelp        = "Anonymous memory, in bytes."
)

// machineFacts are of the machine, and of its root cgroup as far as /proc says.
func (c *Collector) machineFacts(f families) {
	c.machineOnce.Do(func() {
		c.machine = []string{
			"boot_id", c.host.text("proc/sys/kernel/random/boot_id"),
			"machine_id", c.host.text("etc/machine-id"),
			"system_uuid", c.host.text("sys/class/dmi/id/product_uuid"),
		}
	})
	cpus, cores, sockets := c.host.topology()
	for _, g := range []struct {
		name, help string
		value      int
	}{
		{"machine_cpu_cores", "Processors that programs can run on.", cpus},
		{"machine_cpu_physical_cores", "Cores of the machine.", cores},
		{"machine_cpu_sockets", "Sockets of the machine.", sockets},
	} {
		f.add(about{g.name, gaugeKind, g.help}, whole(uint64(g.value)), c.machine...)
	}
	failed := 1.0
	if m, err := c.host.table("proc/meminfo"); err == nil {
		failed = 0
		f.add(about{"machine_memory_bytes", gaugeKind, "Memory of the machine, in bytes."}, whole(m["MemTotal"]), c.machine...)
		f.add(about{"machine_swap_bytes", gaugeKind, "Swap of the machine, in bytes."}, whole(m["SwapTotal"]), c.machine...)
	}
	f.add(about{"machine_scrape_error", gaugeKind, "Whether the machine could not be measured (1)."}, float(failed))
	f.add(about{"cadvisor_version_info", gaugeKind, "What the machine runs on. The value is always 1."}, float(1),
		"cadvisorRevision", "", "cadvisorVersion", "", "dockerVersion", "", "kernelVersion", c.host.text("proc/sys/kernel/osrelease"), "osVersion", c.host.system())
	at := time.Now().UnixNano()
	root := []string{"container", "", "id", "/", "image", "", "name", "", "namespace", "", "pod", ""}
	if used, boot, err := c.host.processor(); err == nil {
		f.add(about{"container_cpu_usage_seconds_total", counterKind, cpuHelp}, seconds(uint64(used)).measured(at), append([]string{"cpu", "total"}, root...)...)
		f.add(about{"container_start_time_seconds", gaugeKind, "When it was started, in seconds since 1970."}, whole(uint64(max(0, boot.Unix()))).measured(at), root...)
	}
	if m, _, err := c.host.memory(); err == nil {
		f.add(about{"container_memory_working_set_bytes", gaugeKind, workingSetHelp}, whole(*m.WorkingSetBytes).measured(at), root...)
		f.add(about{"container_memory_usage_bytes", gaugeKind, usageHelp}, whole(*m.UsageBytes).measured(at), root...)
		f.add(about{"container_memory_rss", gaugeKind, rssHelp}, whole(*m.RSSBytes).measured(at), root...)
	}
}

// system is what the operating system calls itself.
func (h host) system() (name string) {
	for _, file := range []string{"etc/os-release", "usr/lib/os-release"} {
		_ = h.lines(file, func(words []string) {
			if v, ok := strings.CutPrefix(strings.Join(words, " "), "PRETTY_NAME="); ok {
				name = strings.Trim(v, `"'`)
			}
		})
		if name != "" {
			return name
		}
	}
	return "Unknown"
}

// topology counts processors, cores and sockets. Where the kernel does not say
// which processors are of one core, each is one.
func (h host) topology() (cpus, cores, sockets int) {
	core, socket := map[string]bool{}, map[string]bool{}
	at := ""
	_ = h.lines("proc/cpuinfo", func(words []string) {
		key, v, _ := strings.Cut(strings.Join(words, " "), ":")
		v = strings.TrimSpace(v)
		switch strings.TrimSpace(key) {
		case "processor":
			if _, err := strconv.Atoi(v); err == nil {
				cpus++
			}
		case "physical id":
			at = v
			socket[v] = true
		case "core id":
			core[at+"/"+v] = true
		}
	})
	if cpus == 0 {
		cpus = runtime.NumCPU()
	}
	cores, sockets = len(core), len(socket)
	if cores == 0 {
		cores = cpus
	}
	return cpus, cores, max(1, sockets)
}

// containerNames are those of all containers of a pod.
func containerNames(p *corev1.Pod) []string {
	var out []string
	for i := range p.Spec.InitContainers {
		out = append(out, p.Spec.InitContainers[i].Name)
	}
	for i := range p.Spec.Containers {
		out = append(out, p.Spec.Containers[i].Name)
	}
	for i := range p.Spec.EphemeralContainers {
		out = append(out, p.Spec.EphemeralContainers[i].Name)
	}
	return out
}
