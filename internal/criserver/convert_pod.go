package criserver

import (
	"fmt"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/pod"
)

var protocols = map[cri.Protocol]string{
	cri.Protocol_TCP:  "tcp",
	cri.Protocol_UDP:  "udp",
	cri.Protocol_SCTP: "sctp",
}

var protocolsOut = reverse(protocols)

func (d *decoder) podConfig(field string, c *cri.PodSandboxConfig) pod.Config {
	if c == nil {
		d.fail(field, "is required")
		return pod.Config{}
	}
	if c.GetWindows() != nil {
		d.fail(field+".windows", "is set, but this node runs Linux")
	}
	l := c.GetLinux()
	out := pod.Config{
		Metadata:     d.podMetadata(field+".metadata", c.GetMetadata()),
		Hostname:     d.text(field+".hostname", c.GetHostname()),
		LogDirectory: d.absolute(field+".log_directory", c.GetLogDirectory()),
		DNS:          d.dns(field+".dns_config", c.GetDnsConfig()),
		Labels:       c.GetLabels(),
		Annotations:  c.GetAnnotations(),
		CgroupParent: d.text(field+".linux.cgroup_parent", l.GetCgroupParent()),
		Sysctls:      d.textMap(field+".linux.sysctls", l.GetSysctls()),
		Security:     d.podSecurity(field+".linux.security_context", l.GetSecurityContext()),
		Overhead:     d.resources(field+".linux.overhead", l.GetOverhead()),
		Resources:    d.resources(field+".linux.resources", l.GetResources()),
	}
	for i, p := range c.GetPortMappings() {
		out.Ports = append(out.Ports, d.portMapping(fmt.Sprintf("%s.port_mappings[%d]", field, i), p))
	}
	return out
}

func (d *decoder) podMetadata(field string, m *cri.PodSandboxMetadata) pod.Metadata {
	if m == nil {
		d.fail(field, "is required")
		return pod.Metadata{}
	}
	return pod.Metadata{
		Name:      d.required(field+".name", m.GetName()),
		UID:       d.required(field+".uid", m.GetUid()),
		Namespace: d.required(field+".namespace", m.GetNamespace()),
		Attempt:   m.GetAttempt(),
	}
}

func (d *decoder) dns(field string, c *cri.DNSConfig) *pod.DNS {
	if c == nil {
		return nil
	}
	return &pod.DNS{
		Servers:  d.texts(field+".servers", c.GetServers()),
		Searches: d.texts(field+".searches", c.GetSearches()),
		Options:  d.texts(field+".options", c.GetOptions()),
	}
}

func (d *decoder) portMapping(field string, p *cri.PortMapping) pod.PortMapping {
	return pod.PortMapping{
		Protocol:      lookup(d, field+".protocol", protocols, p.GetProtocol()),
		ContainerPort: d.port(field+".container_port", p.GetContainerPort()),
		HostPort:      d.port(field+".host_port", p.GetHostPort()),
		HostIP:        d.text(field+".host_ip", p.GetHostIp()),
	}
}

func encodePodConfig(c *pod.Config) *cri.PodSandboxConfig {
	out := &cri.PodSandboxConfig{
		Metadata:     encodePodMetadata(c.Metadata),
		Hostname:     c.Hostname,
		LogDirectory: c.LogDirectory,
		Labels:       c.Labels,
		Annotations:  c.Annotations,
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    c.CgroupParent,
			Sysctls:         c.Sysctls,
			SecurityContext: encodePodSecurity(&c.Security),
			Overhead:        encodeResources(c.Overhead),
			Resources:       encodeResources(c.Resources),
		},
	}
	if c.DNS != nil {
		out.DnsConfig = &cri.DNSConfig{Servers: c.DNS.Servers, Searches: c.DNS.Searches, Options: c.DNS.Options}
	}
	for _, p := range c.Ports {
		out.PortMappings = append(out.PortMappings, &cri.PortMapping{
			Protocol:      protocolsOut[p.Protocol],
			ContainerPort: int32(p.ContainerPort),
			HostPort:      int32(p.HostPort),
			HostIp:        p.HostIP,
		})
	}
	return out
}

func encodePodMetadata(m pod.Metadata) *cri.PodSandboxMetadata {
	return &cri.PodSandboxMetadata{Name: m.Name, Uid: m.UID, Namespace: m.Namespace, Attempt: m.Attempt}
}
