package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strings"
	"unicode"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// The resolver configuration of the node, and the one behind it where
// systemd-resolved answers on a loopback address.
const (
	nodeResolvConf    = "/etc/resolv.conf"
	systemdResolvConf = "/run/systemd/resolve/resolv.conf"
)

// resolvConf is the content of a pod's resolv.conf. A DNS that says nothing
// means the node's content.
func resolvConf(dns *pod.DNS, node []byte) ([]byte, error) {
	if dns == nil || len(dns.Servers)+len(dns.Searches)+len(dns.Options) == 0 {
		return node, nil
	}
	var b bytes.Buffer
	for _, s := range dns.Servers {
		// A zone, as in fe80::1%eth0, is part of an address and no word.
		if _, err := netip.ParseAddr(s); err != nil || strings.ContainsFunc(s, notInWord) {
			return nil, fmt.Errorf("dns_config.servers: %q is not an IP address: %w", s, errdefs.ErrInvalidArgument)
		}
		fmt.Fprintf(&b, "nameserver %s\n", s)
	}
	for _, line := range []struct {
		field, keyword string
		words          []string
	}{{"searches", "search", dns.Searches}, {"options", "options", dns.Options}} {
		if len(line.words) == 0 {
			continue
		}
		for _, w := range line.words {
			// A line break in a word would make lines of its own.
			if w == "" || strings.ContainsFunc(w, notInWord) {
				return nil, fmt.Errorf("dns_config.%s: %q is empty, or has a space or control character in it: %w", line.field, w, errdefs.ErrInvalidArgument)
			}
		}
		fmt.Fprintf(&b, "%s %s\n", line.keyword, strings.Join(line.words, " "))
	}
	return b.Bytes(), nil
}

func notInWord(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }

// nodeResolver is the resolver configuration that pods inherit. A pod with a
// network of its own cannot reach a resolver on the node's loopback address;
// where that is systemd-resolved, it gets the servers behind it.
func nodeResolver(hostNetwork bool, files ...string) ([]byte, error) {
	own, err := os.ReadFile(files[0])
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the pod gets an empty file, as any process here has none
	}
	if err != nil {
		return nil, fmt.Errorf("read the node's resolver configuration: %w", err)
	}
	if hostNetwork || !onlyLoopback(own) {
		return own, nil
	}
	for _, f := range files[1:] {
		if behind, err := os.ReadFile(f); err == nil && !onlyLoopback(behind) {
			return behind, nil
		}
	}
	return own, nil
}

// onlyLoopback says whether no server of a resolv.conf can be reached from
// another network namespace. Without any, the resolver asks 127.0.0.1.
func onlyLoopback(conf []byte) bool {
	for line := range strings.Lines(string(conf)) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "nameserver" {
			continue
		}
		if addr, err := netip.ParseAddr(f[1]); err != nil || !addr.IsLoopback() {
			return false
		}
	}
	return true
}
