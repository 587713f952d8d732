package pod

import "time"

// ContainerUsage is what a container has used. A part that could not be
// measured is nil.
type ContainerUsage struct {
	CPU    *CPUUsage
	Memory *MemoryUsage
	Swap   *SwapUsage
	IO     *IOUsage
	Layer  *LayerUsage
}

// Usage is what a pod has used, its containers and its own process together. A
// part that could not be measured is nil.
type Usage struct {
	CPU       *CPUUsage
	Memory    *MemoryUsage
	IO        *IOUsage
	Processes *ProcessUsage
	Network   *NetworkUsage
}

// Measured is the answer about a Subject: one of the two, as it is a container
// or a pod, or why it could not be measured.
type Measured struct {
	Container ContainerUsage
	Pod       Usage
	Err       error
}

// CPUUsage is processor time. A value that could not be read is nil, here and
// in the other kinds of usage.
type CPUUsage struct {
	At       time.Time
	Total    *uint64 // ns on all cores since the cgroup was made
	Rate     *uint64 // ns a second, on all cores, since an earlier look
	Pressure *Pressure
}

// MemoryUsage is in bytes.
type MemoryUsage struct {
	At          time.Time
	Total       *uint64
	WorkingSet  *uint64 // Total without the files that nobody has used lately
	Available   *uint64 // what the limit leaves of WorkingSet; nil without a limit
	RSS         *uint64
	MinorFaults *uint64
	MajorFaults *uint64
	Pressure    *Pressure
}

// SwapUsage is in bytes.
type SwapUsage struct {
	At        time.Time
	Total     *uint64
	Available *uint64 // nil without a limit
}

// IOUsage is how long input and output were waited for.
type IOUsage struct {
	At       time.Time
	Pressure *Pressure
}

// ProcessUsage counts as the kernel's limit on processes does: each thread is one.
type ProcessUsage struct {
	At    time.Time
	Count uint64
}

// LayerUsage is what a container has written to its root file system.
type LayerUsage struct {
	At     time.Time
	Path   string // a directory on the same file system
	Bytes  uint64
	Inodes uint64
}

// NetworkUsage has the interfaces of a pod's network namespace but the loopback.
type NetworkUsage struct {
	At         time.Time
	Interfaces []InterfaceUsage
}

// InterfaceUsage is what has passed an interface since it was made.
type InterfaceUsage struct {
	Name    string
	Default bool // it is the one that the pod's network has made
	RxBytes uint64
	RxError uint64
	TxBytes uint64
	TxError uint64
	// Packets that passed, and those that did not.
	RxPackets, RxDropped uint64
	TxPackets, TxDropped uint64
}

// Pressure is for how long processes waited. A kernel that does not tell one of
// the two leaves it nil.
type Pressure struct {
	Some *Stall // at least one process waited
	Full *Stall // all waited at once
}

// Stall is the time in Total, and its share in percent of the last 10, 60 and
// 300 seconds.
type Stall struct {
	Total  time.Duration
	Avg10  float64
	Avg60  float64
	Avg300 float64
}

// InsideUsage is what the kernel of a sandbox counts for one container in it,
// where that is not the host's.
type InsideUsage struct {
	At                time.Time
	CPU, User, System *uint64 // processor time in ns: all of it, outside and in that kernel
	Memory            *uint64 // bytes, its page cache included
	Threads           *uint64
}
