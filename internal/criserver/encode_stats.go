package criserver

import (
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/pod"
)

// usualStats is for how many bytes there is room at first, beside names and labels.
const usualStats = 512

func encodeContainerStats(c *pod.Container, u *pod.ContainerUsage) *cri.ContainerStats {
	w := make(wire, 0, usualStats+sizeOf(c.Config.Labels)+sizeOf(c.Config.Annotations))
	w.message(1, func() { // attributes
		w.text(1, string(c.ID))
		w.message(2, func() { // metadata
			w.text(1, c.Config.Metadata.Name)
			w.number(2, uint64(c.Config.Metadata.Attempt))
		})
		w.texts(3, c.Config.Labels)
		w.texts(4, c.Config.Annotations)
	})
	w.cpu(2, u.CPU)
	w.memory(3, u.Memory)
	w.layer(4, u.Layer)
	w.swap(5, u.Swap)
	w.io(6, u.IO)
	return attach(&cri.ContainerStats{}, w)
}

// encodePodStats leaves the containers to the caller.
func encodePodStats(p *pod.Record, u *pod.Usage) *cri.PodSandboxStats {
	w := make(wire, 0, usualStats+sizeOf(p.Config.Labels)+sizeOf(p.Config.Annotations))
	w.message(1, func() { // attributes
		w.text(1, string(p.ID))
		w.message(2, func() { // metadata
			w.text(1, p.Config.Metadata.Name)
			w.text(2, p.Config.Metadata.UID)
			w.text(3, p.Config.Metadata.Namespace)
			w.number(4, uint64(p.Config.Metadata.Attempt))
		})
		w.texts(3, p.Config.Labels)
		w.texts(4, p.Config.Annotations)
	})
	used := make(wire, 0, usualStats)
	used.cpu(1, u.CPU)
	used.memory(2, u.Memory)
	used.traffic(3, u.Network)
	used.processes(4, u.Processes)
	used.io(6, u.IO)
	return attach(&cri.PodSandboxStats{Linux: attach(&cri.LinuxPodSandboxStats{}, used)}, w)
}

func (w *wire) at(t time.Time) { w.number(1, uint64(t.UnixNano())) }

func (w *wire) cpu(field wireField, u *pod.CPUUsage) {
	if u == nil {
		return
	}
	w.message(field, func() {
		w.at(u.At)
		w.value(2, u.Total) // usage_core_nano_seconds
		w.value(3, u.Rate)  // usage_nano_cores
		w.pressure(4, u.Pressure)
	})
}

func (w *wire) memory(field wireField, u *pod.MemoryUsage) {
	if u == nil {
		return
	}
	w.message(field, func() {
		w.at(u.At)
		w.value(2, u.WorkingSet)
		w.value(3, u.Available)
		w.value(4, u.Total) // usage_bytes
		w.value(5, u.RSS)
		w.value(6, u.MinorFaults) // page_faults
		w.value(7, u.MajorFaults)
		w.pressure(8, u.Pressure)
	})
}

func (w *wire) swap(field wireField, u *pod.SwapUsage) {
	if u == nil {
		return
	}
	w.message(field, func() {
		w.at(u.At)
		w.value(2, u.Available)
		w.value(3, u.Total) // swap_usage_bytes
	})
}

func (w *wire) io(field wireField, u *pod.IOUsage) {
	if u == nil {
		return
	}
	w.message(field, func() {
		w.at(u.At)
		w.pressure(2, u.Pressure)
	})
}

func (w *wire) layer(field wireField, u *pod.LayerUsage) {
	if u == nil {
		return
	}
	w.message(field, func() {
		w.at(u.At)
		w.message(2, func() { w.text(1, u.Path) }) // fs_id
		w.value(3, &u.Bytes)
		w.value(4, &u.Inodes)
	})
}

func (w *wire) processes(field wireField, u *pod.ProcessUsage) {
	if u == nil {
		return
	}
	w.message(field, func() {
		w.at(u.At)
		w.value(2, &u.Count)
	})
}

func (w *wire) traffic(field wireField, u *pod.NetworkUsage) {
	if u == nil {
		return
	}
	w.message(field, func() {
		w.at(u.At)
		for i := range u.Interfaces {
			one, of := &u.Interfaces[i], wireField(3) // interfaces
			if one.Default {
				of = 2 // default_interface
			}
			w.message(of, func() {
				w.text(1, one.Name)
				w.value(2, &one.RxBytes)
				w.value(3, &one.RxError)
				w.value(4, &one.TxBytes)
				w.value(5, &one.TxError)
			})
		}
	})
}

func (w *wire) pressure(field wireField, p *pod.Pressure) {
	if p == nil {
		return
	}
	w.message(field, func() {
		w.stall(1, p.Full)
		w.stall(2, p.Some)
	})
}

func (w *wire) stall(field wireField, s *pod.Stall) {
	if s == nil {
		return
	}
	w.message(field, func() {
		w.number(1, uint64(s.Total))
		w.real(2, s.Avg10)
		w.real(3, s.Avg60)
		w.real(4, s.Avg300)
	})
}
