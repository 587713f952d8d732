package cni

import (
	"fmt"
	"maps"
	"math"
	"strings"

	"github.com/containernetworking/cni/libcni"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/network"
	"fairlead.run/internal/pod"
)

// The arguments that runtimes of Kubernetes pass to every plugin.
func podArgs(req *network.Request) [][2]string {
	return [][2]string{
		{"IgnoreUnknown", "1"},
		{"K8S_POD_NAMESPACE", req.Metadata.Namespace},
		{"K8S_POD_NAME", req.Metadata.Name},
		{"K8S_POD_INFRA_CONTAINER_ID", string(req.ID)},
		{"K8S_POD_UID", req.Metadata.UID},
	}
}

// checkArgs refuses what a plugin would read as something else: CNI_ARGS is one
// text, with neither quotes nor escapes. ";IP=10.0.0.1" at the end of a name would ask
// for an address.
func checkArgs(args [][2]string) error {
	for _, a := range args {
		if strings.ContainsAny(a[1], ";=") {
			return fmt.Errorf("%s %q cannot be told to CNI plugins: it has a %q or a %q: %w", a[0], a[1], ";", "=", errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

// portMapping is an entry of the capability portMappings.
type portMapping struct {
	HostPort      int32  `json:"hostPort"`
	ContainerPort int32  `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP,omitempty"`
}

// bandwidth is the capability of that name: bits per second and bits.
type bandwidth struct {
	IngressRate  uint64 `json:"ingressRate,omitempty"`
	IngressBurst uint64 `json:"ingressBurst,omitempty"`
	EgressRate   uint64 `json:"egressRate,omitempty"`
	EgressBurst  uint64 `json:"egressBurst,omitempty"`
}

// dnsConfig is the capability dns.
type dnsConfig struct {
	Servers  []string `json:"servers,omitempty"`
	Searches []string `json:"searches,omitempty"`
	Options  []string `json:"options,omitempty"`
}

// capabilityArgs are offered to all plugins; libcni passes to each only those
// that its configuration declares. Annotations in particular reach a plugin
// only where the administrator's conflist asks for them.
func capabilityArgs(req *network.Request, limits network.Bandwidth) map[string]any {
	out := map[string]any{}
	if ports := publishedPorts(req.Ports); len(ports) > 0 {
		out["portMappings"] = ports
	}
	if limits != (network.Bandwidth{}) {
		out["bandwidth"] = bandwidth{
			IngressRate: limits.Ingress, IngressBurst: burst(limits.Ingress),
			EgressRate: limits.Egress, EgressBurst: burst(limits.Egress),
		}
	}
	if d := req.DNS; d != nil {
		out["dns"] = dnsConfig{Servers: d.Servers, Searches: d.Searches, Options: d.Options}
	}
	if req.CgroupPath != "" {
		out["cgroupPath"] = req.CgroupPath
	}
	if req.Metadata.Name != "" {
		out["aliases"] = []string{req.Metadata.Name}
	}
	if len(req.Annotations) > 0 {
		out["io.kubernetes.cri.pod-annotations"] = maps.Clone(req.Annotations)
	}
	return out
}

func publishedPorts(ports []pod.PortMapping) []portMapping {
	var out []portMapping
	for _, p := range ports {
		if p.HostPort == 0 {
			continue
		}
		out = append(out, portMapping{
			HostPort: int32(p.HostPort), ContainerPort: int32(p.ContainerPort),
			Protocol: p.Protocol, HostIP: p.HostIP,
		})
	}
	return out
}

// burst is a tenth of a second at the full rate, within what the bandwidth
// plugin takes and never below a few full packets.
func burst(rate uint64) uint64 {
	const fullPackets = 8 * 64 << 10
	if rate == 0 {
		return 0
	}
	return min(max(rate/10, fullPackets), math.MaxInt32)
}

// conditional args differ between ADD and DEL only in the namespace.
func runtimeConf(req *network.Request, caps map[string]any) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: string(req.ID), NetNS: req.NetNS, IfName: network.InterfaceName,
		Args: podArgs(req), CapabilityArgs: caps,
	}
}
