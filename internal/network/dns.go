package network

import (
	"bytes"
	"fmt"
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
	hostResolvConf    = "/etc/resolv.conf"
	systemdResolvConf = "/run/systemd/resolve/resolv.conf"
)

// ResolvConf is the content of a pod's resolv.conf. A DNS that says nothing
// means the node's, whose content the caller passes.
func ResolvConf(dns *pod.DNS, node []byte) ([]byte, error) {
	if dns == nil || len(dns.Servers)+len(dns.Searches)+len(dns.Options) == 0 {
		return node, nil
	}
	var b bytes.Buffer
	for _, s := range dns.Servers {
		// A zone, as in fe80::1%eth0, is part of a server's address.
		if _, err := netip.ParseAddr(s); err != nil {
			return nil, fmt.Errorf("write resolv.conf: DNS server %q is not an address: %w", s, errdefs.ErrInvalidArgument)
		}
		fmt.Fprintf(&b, "nameserver %s\n", s)
	}
	if err := writeWords(&b, "search", dns.Searches); err != nil {
		return nil, err
	}
	if err := writeWords(&b, "options", dns.Options); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// writeWords writes one line. A word with a line break in it would add lines
// of its own.
func writeWords(b *bytes.Buffer, keyword string, words []string) error {
	if len(words) == 0 {
		return nil
	}
	for _, w := range words {
		if w == "" || strings.ContainsFunc(w, notInWord) {
			return fmt.Errorf("write resolv.conf: %s entry %q is empty or has a space or control character: %w", keyword, w, errdefs.ErrInvalidArgument)
		}
	}
	fmt.Fprintf(b, "%s %s\n", keyword, strings.Join(words, " "))
	return nil
}

func notInWord(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }

// NodeResolvConf reads the resolver configuration that pods of this node
// inherit. A pod with a network of its own cannot reach a resolver on the
// node's loopback address; where systemd-resolved is that resolver, such a pod
// gets the servers behind it.
func NodeResolvConf(hostNetwork bool) ([]byte, error) {
	own, err := os.ReadFile(hostResolvConf)
	if os.IsNotExist(err) {
		return nil, nil // the pod gets an empty file, like any process here
	}
	if err != nil {
		return nil, fmt.Errorf("read the node's resolver configuration: %w", err)
	}
	if hostNetwork || !onlyLoopback(own) {
		return own, nil
	}
	behind, err := os.ReadFile(systemdResolvConf)
	if err != nil || onlyLoopback(behind) {
		return own, nil // there is none, and a wrong server is as good as no server
	}
	return behind, nil
}

// onlyLoopback says whether all servers of a resolv.conf are loopback
// addresses. Without any server, the resolver asks 127.0.0.1.
func onlyLoopback(conf []byte) bool {
	for line := range strings.Lines(string(conf)) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "nameserver" {
			continue
		}
		addr, err := netip.ParseAddr(f[1])
		if err != nil || !addr.IsLoopback() {
			return false
		}
	}
	return true
}

// HostAlias is one additional line of a hosts file.
type HostAlias struct {
	IP        netip.Addr
	Hostnames []string
}

// Hosts is the content of a pod's hosts file: localhost in both families, the
// pod's addresses under its host name, and aliases.
func Hosts(hostname string, ips []netip.Addr, aliases []HostAlias) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("127.0.0.1\tlocalhost\n" +
		"::1\tlocalhost ip6-localhost ip6-loopback\n" +
		"fe00::0\tip6-localnet\n" +
		"fe00::0\tip6-mcastprefix\n" +
		"fe00::1\tip6-allnodes\n" +
		"fe00::2\tip6-allrouters\n")
	lines := make([]HostAlias, 0, len(ips)+len(aliases))
	if hostname != "" {
		for _, ip := range ips {
			lines = append(lines, HostAlias{IP: ip, Hostnames: []string{hostname}})
		}
	}
	for _, l := range append(lines, aliases...) {
		if !l.IP.IsValid() || len(l.Hostnames) == 0 {
			return nil, fmt.Errorf("write hosts file: alias %v of address %v is incomplete: %w", l.Hostnames, l.IP, errdefs.ErrInvalidArgument)
		}
		for _, name := range l.Hostnames {
			if name == "" || strings.ContainsFunc(name, notInWord) || strings.Contains(name, "#") {
				return nil, fmt.Errorf("write hosts file: host name %q is empty or has a space, # or control character: %w", name, errdefs.ErrInvalidArgument)
			}
		}
		fmt.Fprintf(&b, "%s\t%s\n", l.IP, strings.Join(l.Hostnames, " "))
	}
	return b.Bytes(), nil
}
