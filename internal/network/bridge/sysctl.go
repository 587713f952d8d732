package bridge

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const sysctlRoot = "/proc/sys"

func readSysctl(key string) (string, error) {
	b, err := os.ReadFile(filepath.Join(sysctlRoot, key))
	return strings.TrimSpace(string(b)), err
}

// writeSysctl makes three system calls. It uses no os.File, which would try the
// descriptor with the poller first, for every pod.
func writeSysctl(key, value string) error {
	fd, err := unix.Open(filepath.Join(sysctlRoot, key), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("open", err)
	}
	_, err = unix.Write(fd, []byte(value))
	return errors.Join(err, unix.Close(fd))
}

// ensureSysctl sets a value where it is not set yet. changed tells whether it
// was this call that did it.
func ensureSysctl(key, value string) (changed bool, err error) {
	have, err := readSysctl(key)
	if err != nil {
		return false, fmt.Errorf("read sysctl %s: %w", dotted(key), err)
	}
	if have == value {
		return false, nil
	}
	if err := writeSysctl(key, value); err != nil {
		return false, fmt.Errorf("set sysctl %s to %s: %w", dotted(key), value, err)
	}
	return true, nil
}

func dotted(key string) string { return strings.ReplaceAll(key, "/", ".") }

// hasIPv6 says whether interfaces of this node can have IPv6 addresses.
func hasIPv6() bool {
	v, err := readSysctl("net/ipv6/conf/all/disable_ipv6")
	return err == nil && v == "0"
}

// forwardIPv4 lets the node pass on packets, and lets the bridge carry those
// of the node's loopback address to host ports.
func forwardIPv4(bridge string) (notes []string, err error) {
	changed, err := ensureSysctl("net/ipv4/ip_forward", "1")
	if err != nil {
		return nil, err
	}
	if changed {
		notes = append(notes, "turned on IPv4 forwarding (net.ipv4.ip_forward) for the pod network")
	}
	// The nftables table keeps pods from reaching 127.0.0.0/8 by this.
	_, err = ensureSysctl("net/ipv4/conf/"+bridge+"/route_localnet", "1")
	return notes, err
}

// forwardIPv6 does the same. A node that forwards ignores router
// advertisements unless accept_ra is 2, and would lose its own default route.
func forwardIPv6(bridge string) (notes []string, err error) {
	if _, err := ensureSysctl("net/ipv6/conf/"+bridge+"/accept_ra", "0"); err != nil {
		return nil, err
	}
	const all = "net/ipv6/conf/all/forwarding"
	if v, err := readSysctl(all); err == nil && v == "1" {
		return nil, nil
	}
	confs, err := os.ReadDir(filepath.Join(sysctlRoot, "net/ipv6/conf"))
	if err != nil {
		return nil, fmt.Errorf("list IPv6 interfaces: %w", err)
	}
	for _, c := range confs {
		key := "net/ipv6/conf/" + c.Name() + "/accept_ra"
		if v, err := readSysctl(key); err == nil && v == "1" && c.Name() != "lo" {
			if err := writeSysctl(key, "2"); err != nil {
				return nil, fmt.Errorf("set sysctl %s to 2: %w", dotted(key), err)
			}
		}
	}
	if err := writeSysctl(all, "1"); err != nil {
		return nil, fmt.Errorf("set sysctl %s to 1: %w", dotted(all), err)
	}
	return []string{"turned on IPv6 forwarding (net.ipv6.conf.all.forwarding) for the pod network; interfaces that take router advertisements go on to (accept_ra=2)"}, nil
}
