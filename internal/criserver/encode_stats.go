package criserver

import (
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/pod"
)

func encodeContainerStats(c *pod.Container, u *pod.ContainerUsage) *cri.ContainerStats {
	return &cri.ContainerStats{
		Attributes: &cri.ContainerAttributes{
			Id:          string(c.ID),
			Metadata:    encodeContainerMetadata(c.Config.Metadata),
			Labels:      c.Config.Labels,
			Annotations: c.Config.Annotations,
		},
		Cpu:           encodeCPU(u.CPU),
		Memory:        encodeMemory(u.Memory),
		Swap:          encodeSwap(u.Swap),
		Io:            encodeIO(u.IO),
		WritableLayer: encodeLayer(u.Layer),
	}
}

func encodePodStats(p *pod.Record, u *pod.Usage) *cri.PodSandboxStats {
	return &cri.PodSandboxStats{
		Attributes: &cri.PodSandboxAttributes{
			Id:          string(p.ID),
			Metadata:    encodePodMetadata(p.Config.Metadata),
			Labels:      p.Config.Labels,
			Annotations: p.Config.Annotations,
		},
		Linux: &cri.LinuxPodSandboxStats{
			Cpu:     encodeCPU(u.CPU),
			Memory:  encodeMemory(u.Memory),
			Io:      encodeIO(u.IO),
			Process: encodeProcesses(u.Processes),
			Network: encodeTraffic(u.Network),
		},
	}
}

func encodeCPU(u *pod.CPUUsage) *cri.CpuUsage {
	if u == nil {
		return nil
	}
	return &cri.CpuUsage{
		Timestamp:            u.At.UnixNano(),
		UsageCoreNanoSeconds: measured(u.Total),
		UsageNanoCores:       measured(u.Rate),
		Psi:                  encodePressure(u.Pressure),
	}
}

func encodeMemory(u *pod.MemoryUsage) *cri.MemoryUsage {
	if u == nil {
		return nil
	}
	return &cri.MemoryUsage{
		Timestamp:       u.At.UnixNano(),
		WorkingSetBytes: measured(u.WorkingSet),
		AvailableBytes:  measured(u.Available),
		UsageBytes:      measured(u.Total),
		RssBytes:        measured(u.RSS),
		PageFaults:      measured(u.MinorFaults),
		MajorPageFaults: measured(u.MajorFaults),
		Psi:             encodePressure(u.Pressure),
	}
}

func encodeSwap(u *pod.SwapUsage) *cri.SwapUsage {
	if u == nil {
		return nil
	}
	return &cri.SwapUsage{
		Timestamp:          u.At.UnixNano(),
		SwapAvailableBytes: measured(u.Available),
		SwapUsageBytes:     measured(u.Total),
	}
}

func encodeIO(u *pod.IOUsage) *cri.IoUsage {
	if u == nil {
		return nil
	}
	return &cri.IoUsage{Timestamp: u.At.UnixNano(), Psi: encodePressure(u.Pressure)}
}

func encodeLayer(u *pod.LayerUsage) *cri.FilesystemUsage {
	if u == nil {
		return nil
	}
	return &cri.FilesystemUsage{
		Timestamp:  u.At.UnixNano(),
		FsId:       &cri.FilesystemIdentifier{Mountpoint: u.Path},
		UsedBytes:  &cri.UInt64Value{Value: u.Bytes},
		InodesUsed: &cri.UInt64Value{Value: u.Inodes},
	}
}

func encodeProcesses(u *pod.ProcessUsage) *cri.ProcessUsage {
	if u == nil {
		return nil
	}
	return &cri.ProcessUsage{Timestamp: u.At.UnixNano(), ProcessCount: &cri.UInt64Value{Value: u.Count}}
}

func encodeTraffic(u *pod.NetworkUsage) *cri.NetworkUsage {
	if u == nil {
		return nil
	}
	out := &cri.NetworkUsage{Timestamp: u.At.UnixNano()}
	for _, i := range u.Interfaces {
		one := &cri.NetworkInterfaceUsage{
			Name:     i.Name,
			RxBytes:  &cri.UInt64Value{Value: i.RxBytes},
			RxErrors: &cri.UInt64Value{Value: i.RxError},
			TxBytes:  &cri.UInt64Value{Value: i.TxBytes},
			TxErrors: &cri.UInt64Value{Value: i.TxError},
		}
		if i.Default {
			out.DefaultInterface = one
		} else {
			out.Interfaces = append(out.Interfaces, one)
		}
	}
	return out
}

func encodePressure(p *pod.Pressure) *cri.PsiStats {
	if p == nil {
		return nil
	}
	return &cri.PsiStats{Full: encodeStall(p.Full), Some: encodeStall(p.Some)}
}

func encodeStall(s *pod.Stall) *cri.PsiData {
	if s == nil {
		return nil
	}
	return &cri.PsiData{Total: uint64(s.Total), Avg10: s.Avg10, Avg60: s.Avg60, Avg300: s.Avg300}
}

// measured is nil for what could not be: a zero would say that there is none.
func measured(v *uint64) *cri.UInt64Value {
	if v == nil {
		return nil
	}
	return &cri.UInt64Value{Value: *v}
}
