package nodestatus

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/errdefs"
)

// Machine reads what a Node says of the machine, under a root: "/", but for tests.
// RuntimeVersion is as a Node has it: fairlead://1.2.3.
func Machine(root, runtimeVersion string) (corev1.NodeSystemInfo, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return corev1.NodeSystemInfo{}, fmt.Errorf("ask the kernel for its name: %w", err)
	}
	boot, err := os.ReadFile(filepath.Join(root, "proc/sys/kernel/random/boot_id"))
	if err != nil {
		return corev1.NodeSystemInfo{}, fmt.Errorf("read the id of this boot: %w", err)
	}
	machine := firstOf(root, "etc/machine-id", "var/lib/dbus/machine-id")
	out := corev1.NodeSystemInfo{
		MachineID: machine, BootID: strings.TrimSpace(string(boot)),
		// As a kubelet does: machines without firmware tables are told apart by
		// their machine id.
		SystemUUID:    firstOf(root, "sys/class/dmi/id/product_uuid", "proc/device-tree/vm,uuid", "etc/machine-id"),
		KernelVersion: unix.ByteSliceToString(name.Release[:]), OSImage: prettyName(root),
		ContainerRuntimeVersion: runtimeVersion, KubeletVersion: KubeletVersion,
		OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
	}
	if swap := swapTotal(root); swap > 0 {
		out.Swap = &corev1.NodeSwapStatus{Capacity: &swap}
	}
	return out, nil
}

func firstOf(root string, paths ...string) string {
	for _, p := range paths {
		text, err := os.ReadFile(filepath.Join(root, p))
		if s := strings.TrimSpace(string(text)); err == nil && s != "" {
			return s
		}
	}
	return ""
}

// prettyName is what /etc/os-release calls the system.
func prettyName(root string) string {
	for _, p := range []string{"etc/os-release", "usr/lib/os-release"} {
		text, err := os.ReadFile(filepath.Join(root, p))
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
			value, ok := strings.CutPrefix(strings.TrimSpace(lines.Text()), "PRETTY_NAME=")
			if ok {
				return strings.Trim(value, `"'`)
			}
		}
	}
	return "Linux"
}

// swapTotal is in bytes.
func swapTotal(root string) int64 {
	text, err := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return 0
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "SwapTotal:" {
			continue
		}
		kb, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return 0
		}
		return kb << 10
	}
	return 0
}

// Addresses are those of a node: its addresses, the first of which is the one that
// others should use, and its name.
func Addresses(hostname string, ips ...netip.Addr) []corev1.NodeAddress {
	var out []corev1.NodeAddress
	for _, ip := range ips {
		out = append(out, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip.String()})
	}
	return append(out, corev1.NodeAddress{Type: corev1.NodeHostName, Address: hostname})
}

// DefaultIP is the address that this machine has for the API server at that host
// and port. Nothing is sent.
func DefaultIP(server string) (netip.Addr, error) {
	c, err := net.Dial("udp", server)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find the address of this machine for the API server %s: %w; name it with --node-ip", server, err)
	}
	defer c.Close()
	local, ok := c.LocalAddr().(*net.UDPAddr)
	if !ok || local.IP.IsLoopback() {
		return netip.Addr{}, fmt.Errorf("find the address of this machine: the API server %s is on this machine itself, at %s; name the node's address with --node-ip: %w", server, c.LocalAddr(), errdefs.ErrInvalidArgument)
	}
	return local.AddrPort().Addr().Unmap(), nil
}
