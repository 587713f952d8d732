package bridge

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

// portBook knows which pod has which port of the node.
type portBook map[portKey][]portHold

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

// reserve takes all ports of a pod, or none. Ports that the pod holds already
// are replaced.
func (b portBook) reserve(id pod.ID, name string, ports []pod.PortMapping) error {
	b.release(id)
	for _, p := range ports {
		if p.HostPort == 0 {
			continue
		}
		key, addr := portKey{p.Protocol, p.HostPort}, nat.HostAddr(p)
		i := slices.IndexFunc(b[key], func(h portHold) bool { return h.overlaps(addr) })
		if i >= 0 {
			holder := b[key][i]
			b.release(id)
			return fmt.Errorf("host port %s is in use by pod %s (%s): choose another hostPort or remove that pod: %w",
				describePort(p), holder.name, holder.id.Short(), errdefs.ErrAlreadyExists)
		}
		b[key] = append(b[key], portHold{addr: addr, id: id, name: name})
	}
	return nil
}

func (b portBook) release(id pod.ID) {
	for key, holds := range b {
		holds = slices.DeleteFunc(holds, func(h portHold) bool { return h.id == id })
		if len(holds) == 0 {
			delete(b, key)
			continue
		}
		b[key] = holds
	}
}

func describePort(p pod.PortMapping) string {
	if p.HostIP == "" {
		return fmt.Sprintf("%d/%s", p.HostPort, p.Protocol)
	}
	return fmt.Sprintf("%s/%s", net.JoinHostPort(p.HostIP, strconv.Itoa(int(p.HostPort))), p.Protocol)
}

// hasHostPort says whether any of the mappings publishes a port.
func hasHostPort(ports []pod.PortMapping) bool {
	return slices.ContainsFunc(ports, func(p pod.PortMapping) bool { return p.HostPort != 0 })
}

// probePorts refuses ports on which a process of the node listens: the
// translation happens before that process sees a packet, so publishing port 22
// would lock people out. SCTP is not probed; hardly any node has it.
func probePorts(ports []pod.PortMapping) error {
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
				describePort(p), errdefs.ErrAlreadyExists)
		}
	}
	return nil
}
