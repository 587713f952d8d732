package claims

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/network/bridge/nat"
	"fairlead.run/internal/pod"
)

// Ports knows which pod has which port of the node.
type Ports map[portKey][]portHold

type portKey struct {
	protocol string
	port     uint16
}

type portHold struct {
	addr netip.Addr // the zero Addr means every address of both families
	id   pod.ID
	name string // namespace/name, for messages
}

// overlaps says whether two holds of one port could receive the same packet.
func (h portHold) overlaps(addr netip.Addr) bool {
	switch {
	case !h.addr.IsValid() || !addr.IsValid():
		return true
	case h.addr.Is4() != addr.Is4():
		return false
	case h.addr.IsUnspecified() || addr.IsUnspecified():
		return true
	}
	return h.addr == addr
}

// Reserve takes all ports of a pod, or none. Ports that the pod holds already
// are replaced.
func (b Ports) Reserve(id pod.ID, name string, ports []pod.PortMapping) error {
	b.Release(id)
	for _, p := range ports {
		if p.HostPort == 0 {
			continue
		}
		key, addr := portKey{p.Protocol, p.HostPort}, nat.HostAddr(p)
		i := slices.IndexFunc(b[key], func(h portHold) bool { return h.overlaps(addr) })
		if i >= 0 {
			holder := b[key][i]
			b.Release(id)
			return fmt.Errorf("host port %s is in use by pod %s (%s): choose another hostPort or remove that pod: %w",
				DescribePort(p), holder.name, holder.id.Short(), errdefs.ErrAlreadyExists)
		}
		b[key] = append(b[key], portHold{addr: addr, id: id, name: name})
	}
	return nil
}

// Release frees the ports of a pod.
func (b Ports) Release(id pod.ID) {
	for key, holds := range b {
		holds = slices.DeleteFunc(holds, func(h portHold) bool { return h.id == id })
		if len(holds) == 0 {
			delete(b, key)
			continue
		}
		b[key] = holds
	}
}

// DescribePort is a port of the node as people write it.
func DescribePort(p pod.PortMapping) string {
	if p.HostIP == "" {
		return fmt.Sprintf("%d/%s", p.HostPort, p.Protocol)
	}
	return fmt.Sprintf("%s/%s", net.JoinHostPort(p.HostIP, strconv.Itoa(int(p.HostPort))), p.Protocol)
}

// HasHostPort says whether any of the mappings publishes a port.
func HasHostPort(ports []pod.PortMapping) bool {
	return slices.ContainsFunc(ports, func(p pod.PortMapping) bool { return p.HostPort != 0 })
}

// ProbePorts refuses ports on which a process of the node listens: the
// translation happens before that process sees a packet, so publishing port 22
// would lock people out. SCTP is not probed; hardly any node has it.
func ProbePorts(ports []pod.PortMapping) error {
	for _, p := range ports {
		if p.HostPort == 0 {
			continue
		}
		addr := net.JoinHostPort(p.HostIP, strconv.Itoa(int(p.HostPort)))
		var err error
		switch p.Protocol {
		case "tcp":
			err = closeProbe(net.Listen("tcp", addr))
		case "udp":
			err = closeProbe(net.ListenPacket("udp", addr))
		}
		if isAddrInUse(err) {
			return fmt.Errorf("host port %s is in use by a process on the node: choose another hostPort or stop that process: %w",
				DescribePort(p), errdefs.ErrAlreadyExists)
		}
	}
	return nil
}

// Unowned describes the ports that are held for others than the pods in ids.
func (b Ports) Unowned(ids map[pod.ID]bool) map[string]pod.ID {
	out := map[string]pod.ID{}
	for key, holds := range b {
		for _, h := range holds {
			if !ids[h.id] {
				out[fmt.Sprintf("%d/%s of pod %s", key.port, key.protocol, h.id)] = h.id
			}
		}
	}
	return out
}
