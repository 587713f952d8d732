// Package localnode gathers what pods may learn of the machine that they run on.
package localnode

import (
	"bufio"
	"bytes"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/opencontainers/cgroups"

	"fairlead.run/internal/node/podspec"
)

const resolvConf = "/etc/resolv.conf"

// Gather finds out about this machine. What cannot be found out stays empty.
func Gather(root string) podspec.Node {
	n := podspec.Node{CPUs: runtime.NumCPU(), SeccompRoot: filepath.Join(root, "seccomp")}
	n.Name, _ = os.Hostname()
	n.Name = strings.ToLower(n.Name)
	n.IPs = lasting(nodeIPs)
	n.PodDomain = "cluster.local" // as nearly all clusters have it
	if data, err := os.ReadFile("/proc/meminfo"); err == nil {
		n.MemoryBytes, n.Swap.Bytes = sizeOf(data, "MemTotal:"), sizeOf(data, "SwapTotal:")
	}
	n.HugePageSizes = cgroups.HugePageSizes()
	n.GroupOOM = cgroups.IsCgroup2UnifiedMode()
	n.Swap.Counted = n.GroupOOM && swapCounted("/proc/self/cgroup", "/sys/fs/cgroup")
	n.DNS = func() podspec.DNS { return nodeDNS(resolvConf, "/run/systemd/resolve/resolv.conf") }
	return n
}

// lasting are addresses, asked anew each time. While there are none it has those that there
// were last: a network that is away for a moment is to change no status. Before there were
// any, the machine has only itself.
func lasting(ask func() []string) func() []string {
	var mu sync.Mutex
	last := []string{"127.0.0.1"}
	return func() []string {
		now := ask()
		mu.Lock()
		defer mu.Unlock()
		if len(now) > 0 {
			last = now
		}
		return slices.Clone(last)
	}
}

// nodeIPs are the address that leads out, and one of the other family. Finding
// it out sends nothing: the addresses are for documentation.
func nodeIPs() []string {
	var out []string
	for _, target := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
		c, err := net.Dial("udp", target)
		if err != nil {
			continue
		}
		if a, ok := c.LocalAddr().(*net.UDPAddr); ok {
			out = append(out, a.IP.String())
		}
		_ = c.Close()
	}
	return out
}

// sizeOf is a line of /proc/meminfo, in bytes; 0 if there is no such line.
func sizeOf(meminfo []byte, name string) int64 {
	for line := range bytes.Lines(meminfo) {
		fields := strings.Fields(string(line))
		if len(fields) >= 2 && fields[0] == name {
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// swapCounted says whether the kernel counts swap, by the cgroup of this process. The one
// at the top has no such file, so a process there looks at those below it.
func swapCounted(own, top string) bool {
	data, err := os.ReadFile(own)
	if err != nil {
		return false
	}
	_, path, _ := strings.Cut(strings.TrimSpace(string(data)), "::")
	for _, pattern := range []string{filepath.Join(top, path, "memory.swap.max"), filepath.Join(top, "*", "memory.swap.max")} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return true
		}
	}
	return false
}

// DNS reads another resolv.conf than the node's own. An empty path is none: pods then ask
// themselves, as with a kubelet, as a runtime that is told nothing takes the node's file.
func DNS(path string) (func() podspec.DNS, error) {
	if path == "" {
		return podspec.Fixed(podspec.DNS{Servers: []string{"127.0.0.1"}}), nil
	}
	if _, err := os.ReadFile(path); err != nil {
		return nil, err
	}
	return func() podspec.DNS { return readResolv(path) }, nil
}

// nodeDNS reads resolv.conf. A server on the node's loopback is out of reach
// for pods; systemd-resolved keeps the real ones in a second file.
func nodeDNS(path, resolved string) podspec.DNS {
	d := readResolv(path)
	for _, s := range d.Servers {
		if ip := net.ParseIP(s); ip != nil && ip.IsLoopback() {
			if real := readResolv(resolved); len(real.Servers) > 0 {
				return real
			}
		}
	}
	return d
}

func readResolv(path string) podspec.DNS {
	d := podspec.DNS{File: path}
	data, err := os.ReadFile(path)
	if err != nil {
		return d
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			d.Servers = append(d.Servers, fields[1])
		case "search":
			d.Searches = fields[1:]
		case "options":
			d.Options = append(d.Options, fields[1:]...)
		}
	}
	return d
}
