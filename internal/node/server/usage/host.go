package usage

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	statsv1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// tick is the unit of times in /proc/stat, which is the same on all machines
// that Linux has programs for.
const tick = 10 * time.Millisecond

// host reads what the kernel says of the machine below a root folder, which
// tests choose.
type host struct{ root string }

func (h host) path(name string) string { return filepath.Join(h.root, name) }

func (h host) text(name string) string {
	b, err := os.ReadFile(h.path(name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// lines calls each with the words of every line that has some.
func (h host) lines(name string, each func(words []string)) error {
	b, err := os.ReadFile(h.path(name))
	if err != nil {
		return fmt.Errorf("read what the kernel counts: %w", err)
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if words := strings.Fields(s.Text()); len(words) > 0 {
			each(words)
		}
	}
	return nil
}

// table reads lines of a name and a number; "name: 12 kB" is in bytes.
func (h host) table(name string) (map[string]uint64, error) {
	out := map[string]uint64{}
	err := h.lines(name, func(words []string) {
		if len(words) < 2 {
			return
		}
		n, err := strconv.ParseUint(words[1], 10, 64)
		if err != nil {
			return
		}
		if len(words) > 2 && words[2] == "kB" {
			n <<= 10
		}
		out[strings.TrimSuffix(words[0], ":")] = n
	})
	return out, err
}

// processor is the time that all processors have worked, and when the machine
// was started.
func (h host) processor() (used time.Duration, boot time.Time, err error) {
	err = h.lines("proc/stat", func(words []string) {
		switch {
		case words[0] == "cpu" && len(words) > 8:
			for _, i := range []int{1, 2, 3, 6, 7, 8} { // not idle and waiting for I/O; guests are in user
				n, _ := strconv.ParseUint(words[i], 10, 64)
				used += time.Duration(n) * tick
			}
		case words[0] == "btime" && len(words) > 1:
			n, _ := strconv.ParseInt(words[1], 10, 64)
			boot = time.Unix(n, 0)
		}
	})
	if err == nil && used == 0 {
		err = fmt.Errorf("read what the kernel counts: %s has no times of processors", h.path("proc/stat"))
	}
	return used, boot, err
}

// memory is that of the machine. What files take that nobody has used lately
// is no part of the working set.
func (h host) memory() (*statsv1.MemoryStats, *statsv1.SwapStats, error) {
	m, err := h.table("proc/meminfo")
	if err != nil {
		return nil, nil, err
	}
	if m["MemTotal"] == 0 {
		return nil, nil, fmt.Errorf("read what the kernel counts: %s has no MemTotal", h.path("proc/meminfo"))
	}
	used := less(m["MemTotal"], m["MemFree"])
	working := less(used, m["Inactive(file)"])
	out := &statsv1.MemoryStats{
		AvailableBytes: new(less(m["MemTotal"], working)), UsageBytes: &used, WorkingSetBytes: &working, RSSBytes: new(m["AnonPages"]),
		PSI: h.pressure("memory"),
	}
	if faults, err := h.table("proc/vmstat"); err == nil {
		out.PageFaults, out.MajorPageFaults = new(faults["pgfault"]), new(faults["pgmajfault"])
	}
	swap := &statsv1.SwapStats{SwapAvailableBytes: new(m["SwapFree"]), SwapUsageBytes: new(less(m["SwapTotal"], m["SwapFree"]))}
	return out, swap, nil
}

func less(a, b uint64) uint64 { return a - min(a, b) }

// pressure is what had to wait for something; nil where the kernel does not
// measure it.
func (h host) pressure(of string) *statsv1.PSIStats {
	var out statsv1.PSIStats
	found := false
	_ = h.lines("proc/pressure/"+of, func(words []string) {
		var d statsv1.PSIData
		for _, w := range words[1:] {
			key, value, _ := strings.Cut(w, "=")
			f, _ := strconv.ParseFloat(value, 64)
			switch key {
			case "avg10":
				d.Avg10 = f
			case "avg60":
				d.Avg60 = f
			case "avg300":
				d.Avg300 = f
			case "total":
				d.Total = uint64(f) * 1000 // microseconds
			}
		}
		switch words[0] {
		case "some":
			out.Some, found = d, true
		case "full":
			out.Full, found = d, true
		}
	})
	if !found {
		return nil
	}
	return &out
}

// network is the traffic of the machine's interfaces but those that are one end
// of a pair, whose other end is a pod's. That of the default route is told first,
// and is no pod's whatever it is: nodes may be containers themselves.
func (h host) network() (*statsv1.NetworkStats, error) {
	first := ""
	_ = h.lines("proc/net/route", func(words []string) {
		if first == "" && len(words) > 7 && words[1] == "00000000" && words[7] == "00000000" {
			first = words[0]
		}
	})
	var out statsv1.NetworkStats
	err := h.lines("proc/net/dev", func(words []string) {
		name, counts, ok := strings.Cut(strings.Join(words, " "), ":")
		v := strings.Fields(counts)
		if !ok || len(v) < 11 || name == "lo" || name != first && h.isPair(name) {
			return
		}
		number := func(i int) *uint64 {
			n, _ := strconv.ParseUint(v[i], 10, 64)
			return &n
		}
		out.Interfaces = append(out.Interfaces, statsv1.InterfaceStats{
			Name: name, RxBytes: number(0), RxErrors: number(2), TxBytes: number(8), TxErrors: number(10),
		})
	})
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(out.Interfaces, func(s statsv1.InterfaceStats) bool { return s.Name == first }); i >= 0 {
		out.InterfaceStats = out.Interfaces[i]
	}
	return &out, nil
}

// isPair says whether an interface is a virtual one whose peer is another
// interface. A VLAN is such, too, but has its own folder below its device.
func (h host) isPair(name string) bool {
	if strings.HasPrefix(name, "veth") {
		return true
	}
	own, peer := h.text("sys/class/net/"+name+"/ifindex"), h.text("sys/class/net/"+name+"/iflink")
	if own == peer || peer == "0" {
		return false
	}
	_, err := os.Stat(h.path("proc/net/vlan/" + name))
	return err != nil
}

// processes is how many there are and may be.
func (h host) processes() *statsv1.RlimitStats {
	var out statsv1.RlimitStats
	for _, name := range []string{"proc/sys/kernel/pid_max", "proc/sys/kernel/threads-max"} {
		if n, err := strconv.ParseInt(h.text(name), 10, 64); err == nil && (out.MaxPID == nil || n < *out.MaxPID) {
			out.MaxPID = &n
		}
	}
	if words := strings.Fields(h.text("proc/loadavg")); len(words) > 3 {
		_, all, _ := strings.Cut(words[3], "/")
		if n, err := strconv.ParseInt(all, 10, 64); err == nil {
			out.NumOfRunningProcesses = &n
		}
	}
	if out.MaxPID == nil && out.NumOfRunningProcesses == nil {
		return nil
	}
	return &out
}

// fileSystem is how full the one is that a path is on.
func fileSystem(path string) (*statsv1.FsStats, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return nil, fmt.Errorf("look how full %s is: %w", path, err)
	}
	size := uint64(s.Bsize)
	return &statsv1.FsStats{
		CapacityBytes: new(s.Blocks * size), AvailableBytes: new(s.Bavail * size), UsedBytes: new(less(s.Blocks, s.Bfree) * size),
		Inodes: new(s.Files), InodesFree: new(s.Ffree), InodesUsed: new(less(s.Files, s.Ffree)),
	}, nil
}
