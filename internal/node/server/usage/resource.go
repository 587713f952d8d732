package usage

import (
	"context"
	"io"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Resource writes the metrics that kubectl top and autoscalers live on, under
// the names and with the labels and times of a kubelet. What the runtime does not
// tell is missing, and resource_scrape_error is 1 then.
func (c *Collector) Resource(ctx context.Context, w io.Writer) error {
	f, failed := families{}, 0.0
	if err := c.nodeResources(f); err != nil {
		c.cfg.Log.Warn("metrics of resources lack the node", "error", err)
		failed = 1
	}
	list, err := c.pods(ctx)
	if err != nil {
		c.cfg.Log.Warn("metrics of resources lack the pods", "error", err)
		failed = 1
	}
	starts := c.starts()
	for _, p := range newest(list) {
		podResources(f, p, starts)
	}
	for _, name := range []string{"resource_scrape_error", "scrape_error"} {
		f.add(about{name, gaugeKind, "1 if there was an error while getting metrics of containers, 0 otherwise."}, float(failed))
	}
	return f.write(w)
}

func (c *Collector) nodeResources(f families) error {
	now := time.Now()
	cpu, _, err := c.processor(now)
	if err != nil {
		return err
	}
	memory, swap, err := c.host.memory()
	if err != nil {
		return err
	}
	at := now.UnixNano()
	f.add(about{"node_cpu_usage_seconds_total", counterKind, "Processor time used by the node, in seconds."}, seconds(*cpu.UsageCoreNanoSeconds).measured(at))
	f.add(about{"node_memory_working_set_bytes", gaugeKind, "Memory in use on the node without the files that nobody has used lately, in bytes."}, whole(*memory.WorkingSetBytes).measured(at))
	f.add(about{"node_swap_usage_bytes", gaugeKind, "Swap in use on the node, in bytes."}, whole(*swap.SwapUsageBytes).measured(at))
	return nil
}

func seconds(ns uint64) value { return float(float64(ns) / 1e9) }

type containerOf struct{ uid, name string }

// starts are the times at which containers were started.
func (c *Collector) starts() map[containerOf]time.Time {
	out := map[containerOf]time.Time{}
	for _, p := range c.cfg.Pods() {
		for _, name := range containerNames(p) {
			if s := statusOf(p, name); s != nil && s.State.Running != nil {
				out[containerOf{string(p.UID), name}] = s.State.Running.StartedAt.Time
			}
		}
	}
	return out
}

func podResources(f families, p *runtimeapi.PodSandboxStats, starts map[containerOf]time.Time) {
	m, linux := p.GetAttributes().GetMetadata(), p.GetLinux()
	labels := []string{"namespace", m.GetNamespace(), "pod", m.GetName()}
	var swap *uint64
	var swapAt int64
	for _, c := range linux.GetContainers() {
		name := c.GetAttributes().GetMetadata().GetName()
		labels := append([]string{"container", name}, labels...)
		usageLines(f, "container", c, labels)
		if at, ok := starts[containerOf{m.GetUid(), name}]; ok && !at.IsZero() {
			f.add(about{"container_start_time_seconds", gaugeKind, "When the container was started, in seconds since 1970."}, float(float64(at.UnixNano())/1e9), labels...)
		}
		if u := number(c.GetSwap().GetSwapUsageBytes()); u != nil {
			swap, swapAt = sum(swap, u), c.GetSwap().GetTimestamp()
			f.add(about{"container_swap_usage_bytes", gaugeKind, "Swap in use by the container, in bytes."}, whole(*u).measured(swapAt), labels...)
			if left := number(c.GetSwap().GetSwapAvailableBytes()); left != nil {
				f.add(about{"container_swap_limit_bytes", gaugeKind, "Swap that the container may use, in bytes."}, whole(*u+*left).measured(swapAt), labels...)
			}
		}
	}
	usageLines(f, "pod", linux, labels)
	if swap != nil {
		f.add(about{"pod_swap_usage_bytes", gaugeKind, "Swap in use by the pod, in bytes."}, whole(*swap).measured(swapAt), labels...)
	}
}

// used is what a container or a pod has used.
type used interface {
	GetCpu() *runtimeapi.CpuUsage
	GetMemory() *runtimeapi.MemoryUsage
}

func usageLines(f families, of string, u used, labels []string) {
	cpu, memory := u.GetCpu(), u.GetMemory()
	if v := number(cpu.GetUsageCoreNanoSeconds()); v != nil {
		f.add(about{of + "_cpu_usage_seconds_total", counterKind, "Processor time used by the " + of + ", in seconds."}, seconds(*v).measured(cpu.GetTimestamp()), labels...)
	}
	if v := number(memory.GetWorkingSetBytes()); v != nil {
		f.add(about{of + "_memory_working_set_bytes", gaugeKind, "Memory in use by the " + of + " without the files that nobody has used lately, in bytes."}, whole(*v).measured(memory.GetTimestamp()), labels...)
	}
}
