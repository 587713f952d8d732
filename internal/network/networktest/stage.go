package networktest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/network"
	"fairlead.run/internal/pod"
)

// Space is a pinned network namespace.
type Space struct {
	Path    string
	dropped bool
}

// NewSpace makes and pins a network namespace and drops it after the test.
func NewSpace(t testing.TB) *Space {
	t.Helper()
	s := &Space{Path: filepath.Join(t.TempDir(), "net")}
	if err := pin(s.Path); err != nil {
		t.Fatalf("pin a network namespace: %v", err)
	}
	t.Cleanup(s.Drop)
	return s
}

func pin(path string) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
		}
		done <- err
	}()
	return <-done
}

// Drop unpins the namespace, as a pod's end does.
func (s *Space) Drop() {
	if s.dropped {
		return
	}
	s.dropped = true
	_ = unix.Unmount(s.Path, unix.MNT_DETACH)
	_ = os.Remove(s.Path)
}

// Listen opens a TCP listener inside.
func (s *Space) Listen(t testing.TB, addr string) net.Listener {
	t.Helper()
	var l net.Listener
	if err := network.InNetNS(s.Path, func() (err error) { l, err = net.Listen("tcp", addr); return err }); err != nil {
		t.Fatalf("listen on %s: %v", addr, err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// Serve answers each connection to addr inside with name and the address of
// the caller.
func (s *Space) Serve(t testing.TB, addr, name string) {
	t.Helper()
	serve(s.Listen(t, addr), name)
}

// ServeHere is Serve in the test's own namespace.
func ServeHere(t testing.TB, addr, name string) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatalf("listen on %s: %v", addr, err)
	}
	t.Cleanup(func() { _ = l.Close() })
	serve(l, name)
}

func serve(l net.Listener, name string) {
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(c, "%s %s\n", name, c.RemoteAddr())
			_ = c.Close()
		}
	}()
}

// ServeUDP answers each datagram with name.
func (s *Space) ServeUDP(t testing.TB, addr, name string) {
	t.Helper()
	var c net.PacketConn
	if err := network.InNetNS(s.Path, func() (err error) { c, err = net.ListenPacket("udp", addr); return err }); err != nil {
		t.Fatalf("listen on udp %s: %v", addr, err)
	}
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		buf := make([]byte, 100)
		for {
			_, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = c.WriteTo([]byte(name), from)
		}
	}()
}

// Ask connects from inside and returns who answered and what address it saw.
func (s *Space) Ask(addr string) (name string, seen netip.Addr, err error) {
	var c net.Conn
	err = network.InNetNS(s.Path, func() (err error) {
		c, err = net.DialTimeout("tcp", addr, 2*time.Second)
		return err
	})
	if err != nil {
		return "", netip.Addr{}, err
	}
	return hear(c)
}

// AskHere is Ask from the test's own namespace.
func AskHere(addr string) (name string, seen netip.Addr, err error) {
	c, err := net.DialTimeout("tcp", addr, 2*time.Second)
	if err != nil {
		return "", netip.Addr{}, err
	}
	return hear(c)
}

func hear(c net.Conn) (name string, seen netip.Addr, err error) {
	_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
	line, err := bufio.NewReader(c).ReadString('\n')
	err = errors.Join(err, c.Close())
	if err != nil {
		return "", netip.Addr{}, err
	}
	name, from, _ := strings.Cut(strings.TrimSpace(line), " ")
	ap, err := netip.ParseAddrPort(from)
	return name, ap.Addr().Unmap(), err
}

// AskUDP sends a datagram from inside and returns the answer.
func (s *Space) AskUDP(addr string) (string, error) {
	var c net.Conn
	if err := network.InNetNS(s.Path, func() (err error) { c, err = net.Dial("udp", addr); return err }); err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, "?"); err != nil {
		return "", err
	}
	_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	return string(buf[:n]), err
}

// Addresses of the link between the stage and Outside.
const (
	NodeIPv4    = "198.51.100.1"
	NodeIPv6    = "2001:db8:51::1"
	OutsideIPv4 = "198.51.100.2"
	OutsideIPv6 = "2001:db8:51::2"
)

// Outside makes a namespace that stands for the rest of the world. It has no
// route to pods; the stage's default route leads to it.
func Outside(t testing.TB) *Space {
	t.Helper()
	s := NewSpace(t)
	ns, err := os.Open(s.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Flags = "uplink", net.FlagUp
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "uplink", PeerNamespace: netlink.NsFd(int(ns.Fd()))}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatalf("create uplink: %v", err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(veth) })
	address(t, NodeIPv4+"/24", NodeIPv6+"/64")
	if err := network.InNetNS(s.Path, func() error { address(t, OutsideIPv4+"/24", OutsideIPv6+"/64"); return nil }); err != nil {
		t.Fatal(err)
	}
	for _, gw := range []string{OutsideIPv4, OutsideIPv6} {
		err := netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(gw)})
		if err != nil && strings.Contains(gw, ".") {
			t.Fatalf("add default route: %v", err)
		}
	}
	return s
}

func address(t testing.TB, addrs ...string) {
	for _, name := range []string{"lo", "uplink"} {
		l, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(l)
		}
		if err != nil {
			t.Errorf("bring %s up: %v", name, err)
			return
		}
		if name == "lo" {
			continue
		}
		for _, a := range addrs {
			addr, err := netlink.ParseAddr(a)
			if err != nil {
				t.Errorf("parse %s: %v", a, err)
				return
			}
			addr.Flags = unix.IFA_F_NODAD
			if err := netlink.AddrAdd(l, addr); err != nil && strings.Contains(a, ".") {
				t.Errorf("add %s: %v", a, err)
			}
		}
	}
}

// Pod is a pod as a driver sees it.
type Pod struct {
	*Space
	Req network.Request
}

// NewPod makes a pod that is not attached.
func NewPod(t testing.TB, name string, ports ...pod.PortMapping) *Pod {
	t.Helper()
	s := NewSpace(t)
	return &Pod{Space: s, Req: network.Request{
		ID: pod.NewID(), NetNS: s.Path, Ports: ports, Hostname: name,
		Metadata: pod.Metadata{Name: name, Namespace: "default", UID: "uid-" + name},
	}}
}

// Start does what the daemon does with a driver, and stops it after the test.
func Start(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("Run did not end within 10 s of its context")
		}
	}
	t.Cleanup(stop)
	return stop
}

// Eventually waits for a condition that the kernel brings about.
func Eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if cond() {
			return
		}
	}
	t.Fatalf("waited 10 s for %s", what)
}

func contains(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }

// LoopbackUp brings the loopback interface of a namespace up.
func LoopbackUp(t testing.TB, s *Space) {
	t.Helper()
	err := network.InNetNS(s.Path, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	if err != nil {
		t.Fatalf("bring loopback up: %v", err)
	}
}

// FullListener opens a TCP port inside on which connections are accepted by
// nobody and, after the first few, not even by the kernel.
func (s *Space) FullListener(t testing.TB, port int) {
	t.Helper()
	fd := -1
	err := network.InNetNS(s.Path, func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			return err
		}
		return unix.Listen(fd, 0)
	})
	if err != nil {
		t.Fatalf("listen on port %d: %v", port, err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
}
