package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// Counters reads the counters of interfaces in other network namespaces. It
// enters none of them: the kernel answers for a namespace that has a number
// here, as that of every pod has from the time that it is attached. The zero
// value is ready.
type Counters struct {
	mu     sync.Mutex
	socket *nl.SocketHandle
}

// In reads those of the namespace pinned at path, without its loopback.
func (c *Counters) In(path string) ([]pod.InterfaceUsage, error) {
	ns, err := OpenNetNS(path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	id, err := c.number(ns.FD())
	if err != nil {
		return nil, fmt.Errorf("number network namespace %s: %w", path, err)
	}
	out, err := c.links(id)
	if err != nil {
		return nil, fmt.Errorf("read the interfaces in network namespace %s: %w", path, err)
	}
	return out, nil
}

// request is one that uses the socket of all: opening one takes as long as
// what is asked.
func (c *Counters) request(kind, flags int) (*nl.NetlinkRequest, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.socket == nil {
		s, err := nl.Subscribe(unix.NETLINK_ROUTE)
		if err != nil {
			return nil, fmt.Errorf("open a netlink socket: %w", err)
		}
		if err := s.SetReceiveTimeout(&nl.SocketTimeoutTv); err != nil {
			s.Close()
			return nil, fmt.Errorf("open a netlink socket: %w", err)
		}
		c.socket = &nl.SocketHandle{Socket: s}
	}
	r := nl.NewNetlinkRequest(kind, flags)
	r.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: c.socket}
	return r, nil
}

// unnumbered is what the kernel says of a namespace without a number.
const unnumbered = -1

// number is the namespace's number as seen from here. It gets one if it has none.
func (c *Counters) number(fd int) (int32, error) {
	id, err := c.readNumber(fd)
	if err != nil || id != unnumbered {
		return id, err
	}
	req, err := c.request(unix.RTM_NEWNSID, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	if err != nil {
		return 0, err
	}
	req.AddData(nl.NewRtGenMsg())
	req.AddData(nl.NewRtAttr(netlink.NETNSA_FD, nl.Uint32Attr(uint32(fd))))
	any := int32(unnumbered)
	req.AddData(nl.NewRtAttr(netlink.NETNSA_NSID, nl.Uint32Attr(uint32(any))))
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return 0, err
	}
	if id, err = c.readNumber(fd); err == nil && id == unnumbered {
		err = fmt.Errorf("the kernel gave it none: %w", errdefs.ErrInternal)
	}
	return id, err
}

func (c *Counters) readNumber(fd int) (int32, error) {
	req, err := c.request(unix.RTM_GETNSID, unix.NLM_F_REQUEST)
	if err != nil {
		return 0, err
	}
	req.AddData(nl.NewRtGenMsg())
	req.AddData(nl.NewRtAttr(netlink.NETNSA_FD, nl.Uint32Attr(uint32(fd))))
	msgs, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNSID)
	if err != nil {
		return 0, err
	}
	for _, m := range msgs {
		attrs, err := nl.ParseRouteAttr(m[nl.NewRtGenMsg().Len():])
		if err != nil {
			return 0, err
		}
		for _, a := range attrs {
			if a.Attr.Type == netlink.NETNSA_NSID && len(a.Value) >= 4 {
				return int32(binary.NativeEndian.Uint32(a.Value)), nil
			}
		}
	}
	return unnumbered, nil
}

func (c *Counters) links(id int32) ([]pod.InterfaceUsage, error) {
	req, err := c.request(unix.RTM_GETLINK, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	if err != nil {
		return nil, err
	}
	req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	req.AddData(nl.NewRtAttr(unix.IFLA_TARGET_NETNSID, nl.Uint32Attr(uint32(id))))
	msgs, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) { // an interface came or went: what was read holds
		return nil, err
	}
	out := []pod.InterfaceUsage{}
	for _, m := range msgs {
		u, there, err := link(m)
		if err != nil {
			return nil, err
		}
		if there {
			out = append(out, u)
		}
	}
	return out, nil
}

// The places of the counters in struct rtnl_link_stats64, from linux/if_link.h.
const (
	rxPackets = 0 * 8
	txPackets = 1 * 8
	rxBytes   = 2 * 8
	txBytes   = 3 * 8
	rxError   = 4 * 8
	txError   = 5 * 8
	rxDropped = 6 * 8
	txDropped = 7 * 8
)

// link reads one answer. There is nothing to tell of a loopback.
func link(m []byte) (u pod.InterfaceUsage, there bool, err error) {
	info := nl.DeserializeIfInfomsg(m)
	attrs, err := nl.ParseRouteAttr(m[info.Len():])
	if err != nil {
		return u, false, err
	}
	elsewhere, counted := false, false
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.IFLA_TARGET_NETNSID:
			elsewhere = true
		case unix.IFLA_IFNAME:
			// Whoever is in the pod may have renamed it; no answer can hold what is no
			// UTF-8, and that of a whole list would fail.
			u.Name = strings.ToValidUTF8(unix.ByteSliceToString(a.Value), "\uFFFD")
			u.Default = u.Name == InterfaceName
		case unix.IFLA_STATS64:
			if counted = len(a.Value) >= txDropped+8; counted {
				at := func(offset int) uint64 { return binary.NativeEndian.Uint64(a.Value[offset:]) }
				u.RxBytes, u.TxBytes, u.RxError, u.TxError = at(rxBytes), at(txBytes), at(rxError), at(txError)
				u.RxPackets, u.TxPackets, u.RxDropped, u.TxDropped = at(rxPackets), at(txPackets), at(rxDropped), at(txDropped)
			}
		}
	}
	if !elsewhere { // a kernel before 4.15 answers for its own namespace instead
		return u, false, fmt.Errorf("this kernel does not tell of another namespace: %w", errdefs.ErrUnimplemented)
	}
	return u, counted && info.Flags&unix.IFF_LOOPBACK == 0, nil
}
