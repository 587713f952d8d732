package bridge

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/network"
	"fairlead.run/internal/pod"
)

var linkMade = failpoint.Register("bridge.link-made")

// vethPrefix begins the names of links.
const vethPrefix = "fl"

// vethName is the host's end of a pod's link. It follows from the bridge and
// the id alone, so that it can be found again without any record.
func vethName(bridge string, id pod.ID) string {
	sum := sha256.Sum256([]byte(bridge + "\x00" + string(id)))
	return vethPrefix + hex.EncodeToString(sum[:])[:13]
}

// hardwareAddr derives a locally administered address from the IP address:
// whoever gets the IP address next has the same one, so nobody's neighbour
// table is stale.
func hardwareAddr(ip netip.Addr) net.HardwareAddr {
	b := ip.As16() // of an IPv4 address, the last four bytes
	return net.HardwareAddr{0x0a, 0x58, b[12], b[13], b[14], b[15]}
}

// wire is one pod's link, to be made.
type wire struct {
	veth   string
	netns  string
	master int // index of the bridge
	mtu    int
	addrs  []wireAddr
	limits network.Bandwidth
}

type wireAddr struct {
	addr    netip.Prefix
	gateway netip.Addr
}

// connect makes the link and configures the pod's end. On an error the caller
// removes the host's end, which takes the other with it.
func (w *wire) connect(host *netlink.Handle) error {
	ns, err := network.OpenNetNS(w.netns)
	if err != nil {
		return err
	}
	defer ns.Close()
	var inside *netlink.Handle
	err = ns.Do(func() (err error) {
		if err := quietIPv6(); err != nil {
			return err
		}
		inside, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return err
	}
	defer inside.Close()
	if err := w.makePair(ns.FD()); err != nil {
		return fmt.Errorf("create link %s: %w", w.veth, err)
	}
	if err := failpoint.Hit(linkMade); err != nil {
		return err
	}
	index, err := linkIndex(w.veth)
	if err != nil {
		return fmt.Errorf("find link %s: %w", w.veth, err)
	}
	// Needed where br_netfilter translates a pod's packet back to itself.
	if err := host.LinkSetHairpin(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Index: index}}, true); err != nil {
		return fmt.Errorf("set hairpin on %s: %w", w.veth, err)
	}
	if err := shape(host, index, w.limits.Ingress); err != nil {
		return fmt.Errorf("limit ingress bandwidth: %w", err)
	}
	return w.configureInside(inside)
}

// quietIPv6 makes addresses of new interfaces usable at once and keeps router
// advertisements, which any pod on the bridge could send, out of the pod.
func quietIPv6() error {
	for _, key := range []string{"accept_dad", "accept_ra"} {
		err := writeSysctl("net/ipv6/conf/default/"+key, "0")
		if err != nil && !errors.Is(err, os.ErrNotExist) { // no IPv6 in this kernel
			return err
		}
	}
	return nil
}

// makePair creates both ends in their namespaces, and the host's end up and on
// the bridge, in one message. The library's LinkAdd would need three.
func (w *wire) makePair(nsfd int) error {
	req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	req.AddData(upMessage())
	req.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(w.veth)))
	req.AddData(nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(w.mtu))))
	req.AddData(nl.NewRtAttr(unix.IFLA_MASTER, nl.Uint32Attr(uint32(w.master))))
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("veth"))
	peer := info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(nl.VETH_INFO_PEER, nil)
	// Not up yet: the kernel refuses that before both ends exist.
	peer.AddChild(nl.NewIfInfomsg(unix.AF_UNSPEC))
	peer.AddRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(network.InterfaceName))
	peer.AddRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(w.mtu)))
	peer.AddRtAttr(unix.IFLA_ADDRESS, hardwareAddr(w.addrs[0].addr.Addr()))
	peer.AddRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(nsfd)))
	req.AddData(info)
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

func upMessage() *nl.IfInfomsg {
	m := nl.NewIfInfomsg(unix.AF_UNSPEC)
	m.Flags, m.Change = unix.IFF_UP, unix.IFF_UP
	return m
}

func (w *wire) configureInside(h *netlink.Handle) error {
	// The loopback interface is number 1 of every namespace.
	if err := h.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: 1}}); err != nil {
		return fmt.Errorf("bring loopback up in the pod: %w", err)
	}
	link, err := h.LinkByName(network.InterfaceName)
	if err != nil {
		return fmt.Errorf("find %s in the pod: %w", network.InterfaceName, err)
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring %s up in the pod: %w", network.InterfaceName, err)
	}
	for _, a := range w.addrs {
		addr := &netlink.Addr{IPNet: ipNet(a.addr)}
		if a.addr.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := h.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("give the pod address %s: %w", a.addr, err)
		}
		r := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: a.gateway.AsSlice()}
		if err := h.RouteAdd(r); err != nil {
			return fmt.Errorf("give the pod its default route by %s: %w", a.gateway, err)
		}
	}
	if err := shape(h, link.Attrs().Index, w.limits.Egress); err != nil {
		return fmt.Errorf("limit egress bandwidth: %w", err)
	}
	return nil
}

// linkIndex asks for one number, where netlink would answer with pages.
func linkIndex(name string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	defer func() { _ = unix.Close(fd) }()
	req, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, req); err != nil {
		return 0, os.NewSyscallError("SIOCGIFINDEX", err)
	}
	return int(req.Uint32()), nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// deleteLink removes a link of the host; one that is gone is fine. It waits
// for the kernel's grace period, some 20 ms, and so has a socket of its own.
func deleteLink(name string) error {
	link, err := netlink.LinkByName(name)
	if isLinkNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete link %s: %w", name, err)
	}
	return nil
}

func isLinkNotFound(err error) bool {
	var notFound netlink.LinkNotFoundError
	return errors.As(err, &notFound)
}
