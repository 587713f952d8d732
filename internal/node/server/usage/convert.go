package usage

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsv1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

func moment(ns int64) metav1.Time { return metav1.NewTime(time.Unix(0, ns)) }

func number(v *runtimeapi.UInt64Value) *uint64 {
	if v == nil {
		return nil
	}
	return new(v.GetValue())
}

func pressure(p *runtimeapi.PsiStats) *statsv1.PSIStats {
	if p == nil {
		return nil
	}
	data := func(d *runtimeapi.PsiData) statsv1.PSIData {
		return statsv1.PSIData{Total: d.GetTotal(), Avg10: d.GetAvg10(), Avg60: d.GetAvg60(), Avg300: d.GetAvg300()}
	}
	return &statsv1.PSIStats{Full: data(p.GetFull()), Some: data(p.GetSome())}
}

func cpuOf(u *runtimeapi.CpuUsage) *statsv1.CPUStats {
	if u == nil {
		return nil
	}
	return &statsv1.CPUStats{
		Time: moment(u.GetTimestamp()), UsageNanoCores: number(u.GetUsageNanoCores()), UsageCoreNanoSeconds: number(u.GetUsageCoreNanoSeconds()),
		PSI: pressure(u.GetPsi()),
	}
}

func memoryOf(u *runtimeapi.MemoryUsage) *statsv1.MemoryStats {
	if u == nil {
		return nil
	}
	return &statsv1.MemoryStats{
		Time: moment(u.GetTimestamp()), AvailableBytes: number(u.GetAvailableBytes()), UsageBytes: number(u.GetUsageBytes()),
		WorkingSetBytes: number(u.GetWorkingSetBytes()), RSSBytes: number(u.GetRssBytes()),
		PageFaults: number(u.GetPageFaults()), MajorPageFaults: number(u.GetMajorPageFaults()), PSI: pressure(u.GetPsi()),
	}
}

func swapOf(u *runtimeapi.SwapUsage) *statsv1.SwapStats {
	if u == nil {
		return nil
	}
	return &statsv1.SwapStats{Time: moment(u.GetTimestamp()), SwapAvailableBytes: number(u.GetSwapAvailableBytes()), SwapUsageBytes: number(u.GetSwapUsageBytes())}
}

func ioOf(u *runtimeapi.IoUsage) *statsv1.IOStats {
	if u == nil {
		return nil
	}
	return &statsv1.IOStats{Time: moment(u.GetTimestamp()), PSI: pressure(u.GetPsi())}
}

func networkOf(u *runtimeapi.NetworkUsage) *statsv1.NetworkStats {
	if u == nil {
		return nil
	}
	one := func(i *runtimeapi.NetworkInterfaceUsage) statsv1.InterfaceStats {
		return statsv1.InterfaceStats{
			Name: i.GetName(), RxBytes: number(i.GetRxBytes()), RxErrors: number(i.GetRxErrors()),
			TxBytes: number(i.GetTxBytes()), TxErrors: number(i.GetTxErrors()),
		}
	}
	out := &statsv1.NetworkStats{Time: moment(u.GetTimestamp()), InterfaceStats: one(u.GetDefaultInterface())}
	for _, i := range u.GetInterfaces() {
		out.Interfaces = append(out.Interfaces, one(i))
	}
	if len(out.Interfaces) == 0 && u.GetDefaultInterface() != nil {
		out.Interfaces = []statsv1.InterfaceStats{out.InterfaceStats}
	}
	return out
}

// sum adds what is known; nothing known is nil.
func sum(values ...*uint64) *uint64 {
	var out *uint64
	for _, v := range values {
		if v == nil {
			continue
		}
		if out == nil {
			out = new(uint64(0))
		}
		*out += *v
	}
	return out
}

// sumCPU is what containers use together, for runtimes that do not say what a
// pod uses.
func sumCPU(list []statsv1.ContainerStats) *statsv1.CPUStats {
	var out *statsv1.CPUStats
	for _, c := range list {
		if c.CPU == nil {
			continue
		}
		if out == nil {
			out = &statsv1.CPUStats{Time: c.CPU.Time}
		}
		out.UsageNanoCores = sum(out.UsageNanoCores, c.CPU.UsageNanoCores)
		out.UsageCoreNanoSeconds = sum(out.UsageCoreNanoSeconds, c.CPU.UsageCoreNanoSeconds)
	}
	return out
}

func sumMemory(list []statsv1.ContainerStats) *statsv1.MemoryStats {
	var out *statsv1.MemoryStats
	for _, c := range list {
		if c.Memory == nil {
			continue
		}
		if out == nil {
			out = &statsv1.MemoryStats{Time: c.Memory.Time}
		}
		out.UsageBytes = sum(out.UsageBytes, c.Memory.UsageBytes)
		out.WorkingSetBytes = sum(out.WorkingSetBytes, c.Memory.WorkingSetBytes)
		out.RSSBytes = sum(out.RSSBytes, c.Memory.RSSBytes)
		out.PageFaults = sum(out.PageFaults, c.Memory.PageFaults)
		out.MajorPageFaults = sum(out.MajorPageFaults, c.Memory.MajorPageFaults)
	}
	return out
}

func sumSwap(list []statsv1.ContainerStats) *statsv1.SwapStats {
	var out *statsv1.SwapStats
	for _, c := range list {
		if c.Swap == nil {
			continue
		}
		if out == nil {
			out = &statsv1.SwapStats{Time: c.Swap.Time}
		}
		out.SwapUsageBytes = sum(out.SwapUsageBytes, c.Swap.SwapUsageBytes)
		out.SwapAvailableBytes = sum(out.SwapAvailableBytes, c.Swap.SwapAvailableBytes)
	}
	return out
}
