package podspec

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/errdefs"
)

// maxKernelName is what the kernel takes as the name of a host.
const maxKernelName = 64

// Hostname is the pod's own name, cut to what a host may be called, or the one that
// the pod asks for.
func Hostname(pod *corev1.Pod) string {
	if o := pod.Spec.HostnameOverride; o != nil && *o != "" {
		return *o
	}
	if pod.Spec.Hostname != "" {
		return pod.Spec.Hostname
	}
	name := pod.Name
	if len(name) > 63 {
		name = strings.TrimRight(name[:63], "-.")
	}
	return name
}

// Domain is where the pod's name is found by the cluster's DNS; empty if it has no
// subdomain.
func Domain(c *Context) string {
	spec := &c.Pod.Spec
	if spec.Subdomain == "" || spec.HostnameOverride != nil && *spec.HostnameOverride != "" {
		return ""
	}
	domain := spec.Subdomain + "." + c.Pod.Namespace + ".svc"
	if of := cmp.Or(c.Node.ClusterDomain, c.Node.PodDomain); of != "" {
		domain += "." + of
	}
	return domain
}

// KernelName is what the kernel tells the pod as its name: with the domain, if
// setHostnameAsFQDN asks for it. The error says that this is too long.
func KernelName(c *Context) (string, error) {
	name, domain := Hostname(c.Pod), Domain(c)
	if domain != "" && isTrue(c.Pod.Spec.SetHostnameAsFQDN) {
		name += "." + domain
	}
	if len(name) > maxKernelName {
		return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is the max, %d characters requested); shorten the pod's hostname or subdomain, or leave setHostnameAsFQDN out: %w",
			name, maxKernelName, len(name), errdefs.ErrInvalidArgument)
	}
	return name, nil
}

// The first lines of a hosts file, by which others know whose it is.
const (
	hostsHead     = "# Kubernetes-managed hosts file.\n"
	hostsNodeHead = "# Kubernetes-managed hosts file (host network).\n"
	hostsAliases  = "\n# Entries added by HostAliases.\n"
	hostsLocal    = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nff02::1\tip6-allnodes\nff02::2\tip6-allrouters\n"
)

// Hosts is the pod's hosts file: for a pod on the node's network the node's own, and
// the pod's aliases in any case.
func Hosts(c *Context, node []byte) []byte {
	var b bytes.Buffer
	if c.Pod.Spec.HostNetwork {
		b.WriteString(hostsNodeHead)
		b.Write(node)
	} else {
		b.WriteString(hostsHead + hostsLocal)
		names := Hostname(c.Pod)
		if domain := Domain(c); domain != "" {
			names = names + "." + domain + "\t" + names
		}
		for _, ip := range c.Addresses() {
			fmt.Fprintf(&b, "%s\t%s\n", ip, names)
		}
	}
	for i, a := range c.Pod.Spec.HostAliases {
		if i == 0 {
			b.WriteString(hostsAliases)
		}
		fmt.Fprintf(&b, "%s\t%s\n", a.IP, strings.Join(a.Hostnames, "\t"))
	}
	return b.Bytes()
}
