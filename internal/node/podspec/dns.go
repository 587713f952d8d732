package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What resolvers take, and validation of the API lets pass.
const (
	maxServers     = 3
	maxSearches    = 32
	maxSearchChars = 2048
)

// The kubelet's reasons of events about DNS.
const (
	MissingClusterDNS = "MissingClusterDNS"
	DNSConfigForming  = "DNSConfigForming"
)

// Warning is something that an event should tell of a pod that runs all the same.
type Warning struct{ Reason, Message string }

// ResolvConf is what a pod's resolv.conf says, by its dnsPolicy and dnsConfig, and
// what of that could not be as it was asked for.
func ResolvConf(c *Context) (*runtimeapi.DNSConfig, []Warning) {
	var warnings []Warning
	out, node := &runtimeapi.DNSConfig{}, c.Node.DNS()
	switch policy := dnsPolicy(c.Pod); {
	case policy == corev1.DNSNone:
	case policy == corev1.DNSClusterFirst && len(c.Node.ClusterDNS) > 0:
		out.Servers = slices.Clone(c.Node.ClusterDNS)
		out.Searches = addNew(clusterSearches(c), node.Searches...)
		out.Options = []string{"ndots:5"}
	default:
		if policy == corev1.DNSClusterFirst && c.Node.ClusterDomain != "" {
			warnings = append(warnings, Warning{MissingClusterDNS, fmt.Sprintf("pod: %q. This node does not have a ClusterDNS IP configured and cannot create Pod using %q policy. Falling back to %q policy.",
				c.Pod.Name+"_"+c.Pod.Namespace+"("+string(c.Pod.UID)+")", c.Pod.Spec.DNSPolicy, corev1.DNSDefault)})
		}
		out.Servers = slices.Clone(node.Servers)
		out.Searches = slices.Clone(node.Searches)
		out.Options = slices.Clone(node.Options)
	}
	if d := c.Pod.Spec.DNSConfig; d != nil {
		out.Servers = addNew(out.Servers, d.Nameservers...)
		out.Searches = addNew(out.Searches, d.Searches...)
		out.Options = addOptions(out.Options, d.Options)
	}
	return out, append(warnings, fit(out)...)
}

// dnsPolicy is None, Default or ClusterFirst: what the last two of the four come to
// depends on whose network the pod is in.
func dnsPolicy(pod *corev1.Pod) corev1.DNSPolicy {
	switch p := pod.Spec.DNSPolicy; {
	case p == corev1.DNSNone, p == corev1.DNSDefault:
		return p
	case p == corev1.DNSClusterFirstWithHostNet || !pod.Spec.HostNetwork:
		return corev1.DNSClusterFirst
	}
	return corev1.DNSDefault
}

func clusterSearches(c *Context) []string {
	domain := c.Node.ClusterDomain
	if domain == "" {
		return nil
	}
	return []string{c.Pod.Namespace + ".svc." + domain, "svc." + domain, domain}
}

// fit cuts off what resolvers would not read, and says what is left.
func fit(d *runtimeapi.DNSConfig) []Warning {
	var out []Warning
	if len(d.Servers) > maxServers {
		d.Servers = d.Servers[:maxServers]
		out = append(out, Warning{DNSConfigForming, "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: " + strings.Join(d.Servers, " ")})
	}
	n, chars := 0, -1
	for n < len(d.Searches) && n < maxSearches && chars+1+len(d.Searches[n]) <= maxSearchChars {
		chars += 1 + len(d.Searches[n])
		n++
	}
	if n < len(d.Searches) {
		d.Searches = d.Searches[:n]
		out = append(out, Warning{DNSConfigForming, "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " + strings.Join(d.Searches, " ")})
	}
	return out
}

// addOptions puts those of the pod over those of the same name.
func addOptions(list []string, more []corev1.PodDNSConfigOption) []string {
	for _, o := range more {
		list = slices.DeleteFunc(list, func(old string) bool {
			name, _, _ := strings.Cut(old, ":")
			return name == o.Name
		})
		text := o.Name
		if o.Value != nil && *o.Value != "" {
			text += ":" + *o.Value
		}
		list = append(list, text)
	}
	return list
}

func addNew(list []string, more ...string) []string {
	for _, s := range more {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}
