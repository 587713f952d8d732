// Package sysctl says which kernel parameters pods may set on a node: those that are
// known to concern nobody but the pod, and those that the node's administrator allows
// besides. It sets none of them; the runtime does.
package sysctl

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Forbidden is the reason of a pod that asks for others. It is the kubelet's.
const Forbidden = "SysctlForbidden"

// safe are those that a pod has for itself and that cost nobody else anything. The
// youngest of them are so since Linux 4.15, which is older than any kernel that
// Kubernetes runs on.
var safe = []string{
	"kernel.shm_rmid_forced",
	"net.ipv4.ip_local_port_range",
	"net.ipv4.ip_local_reserved_ports",
	"net.ipv4.ip_unprivileged_port_start",
	"net.ipv4.ping_group_range",
	"net.ipv4.tcp_fin_timeout",
	"net.ipv4.tcp_keepalive_intvl",
	"net.ipv4.tcp_keepalive_probes",
	"net.ipv4.tcp_keepalive_time",
	"net.ipv4.tcp_rmem",
	"net.ipv4.tcp_syncookies",
	"net.ipv4.tcp_wmem",
}

// namespaced are how the names begin of what is not the whole machine's.
var namespaced = []struct {
	prefix string
	of     namespace
}{
	{"kernel.shm", ipc}, {"kernel.msg", ipc}, {"kernel.sem", ipc}, {"fs.mqueue.", ipc}, {"net.", network},
}

type namespace string

const (
	none    namespace = ""
	ipc     namespace = "IPC"
	network namespace = "network"
)

func namespaceOf(name string) namespace {
	for _, n := range namespaced {
		if strings.HasPrefix(name, n.prefix) {
			return n.of
		}
	}
	return none
}

// shape is of a name or a pattern, with dots or slashes. The API server asks the same
// of names.
var shape = regexp.MustCompile(`^[a-z0-9]([-_a-z0-9]*[a-z0-9])?([./][a-z0-9]([-_a-z0-9]*[a-z0-9])?)*([-_./a-z0-9]*\*)?$`)

// Allowed are those that pods may set. The zero value allows none; New makes it.
type Allowed struct{ patterns []string }

// New allows what is safe, and besides it what the patterns name. One that ends in an
// asterisk is of all that begin so. What is the whole machine's cannot be allowed.
func New(patterns []string) (Allowed, error) {
	a := Allowed{patterns: slices.Clone(safe)}
	for _, p := range patterns {
		if !shape.MatchString(p) {
			return Allowed{}, fmt.Errorf("%q is not the name of a kernel parameter such as net.core.somaxconn or net.ipv4.*", p)
		}
		p = Dotted(p)
		if namespaceOf(p) == none {
			return Allowed{}, fmt.Errorf("%q is not known to be a pod's own, so that pods would set it for the whole machine; "+
				"those that can be allowed begin with net., kernel.shm, kernel.msg, kernel.sem or fs.mqueue", p)
		}
		a.patterns = append(a.patterns, p)
	}
	return a, nil
}

// Dotted is a name with dots between its parts. One that was given with slashes may
// have dots within a part, as names of interfaces have.
func Dotted(name string) string {
	first := strings.IndexAny(name, "./")
	if first < 0 || name[first] == '.' {
		return name
	}
	return strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}, name)
}

// Check says why a pod may not have its parameters; nil if it may.
func (a Allowed) Check(pod *corev1.Pod) error {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	for _, s := range pod.Spec.SecurityContext.Sysctls {
		if err := a.check(Dotted(s.Name), &pod.Spec); err != nil {
			return fmt.Errorf("forbidden sysctl: %w", err)
		}
	}
	return nil
}

func (a Allowed) check(name string, spec *corev1.PodSpec) error {
	matches := func(pattern string) bool {
		prefix, cut := strings.CutSuffix(pattern, "*")
		return name == pattern || cut && strings.HasPrefix(name, prefix)
	}
	of := namespaceOf(name)
	switch {
	case !slices.ContainsFunc(a.patterns, matches):
		return fmt.Errorf("%q not allowlisted on this node; --allowed-unsafe-sysctls allows what is not safe for other pods", name)
	case of == ipc && spec.HostIPC, of == network && spec.HostNetwork:
		return fmt.Errorf("%q not allowed for a pod in the host's %s namespace", name, of)
	}
	return nil
}
