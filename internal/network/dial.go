package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// DialInNetNS connects to a TCP port on localhost as seen inside the network
// namespace pinned at path: 127.0.0.1, and ::1 where that fails. Only the
// socket is made inside; no thread waits there for the connection.
func DialInNetNS(ctx context.Context, path string, port uint16) (net.Conn, error) {
	if port == 0 {
		return nil, fmt.Errorf("connect to port 0 of a pod: %w", errdefs.ErrInvalidArgument)
	}
	v4 := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
	conn, err := dialOne(ctx, path, v4)
	if err == nil {
		return conn, nil
	}
	if ctx.Err() == nil && !errors.Is(err, errdefs.ErrNotFound) {
		v6 := netip.AddrPortFrom(netip.IPv6Loopback(), port)
		conn6, err6 := dialOne(ctx, path, v6)
		if err6 == nil {
			return conn6, nil
		}
		err = errors.Join(err, err6)
	}
	if errors.Is(err, unix.ECONNREFUSED) {
		err = fmt.Errorf("nothing listens there: %w: %w", err, errdefs.ErrUnavailable)
	}
	return nil, fmt.Errorf("connect to port %s in network namespace %s: %w", strconv.Itoa(int(port)), path, err)
}

// DialAddresses connects to a TCP port at one of a pod's addresses, from the node:
// the way to what listens in a kernel that shows nothing of it in the pod's network
// namespace. What listens on localhost alone there cannot be reached.
func DialAddresses(ctx context.Context, addresses []netip.Addr, port uint16) (net.Conn, error) {
	if len(addresses) == 0 {
		return nil, fmt.Errorf("connect to port %d of a pod: it has no address of its own, and nobody can look into its sandbox: %w", port, errdefs.ErrUnimplemented)
	}
	var failed error
	for _, a := range addresses {
		conn, err := (&net.Dialer{Timeout: addressTimeout}).DialContext(ctx, "tcp", netip.AddrPortFrom(a, port).String())
		if err == nil {
			return conn, nil
		}
		failed = errors.Join(failed, err)
	}
	return nil, fmt.Errorf("connect to port %d of a pod at its address, where what listens on localhost alone is not reached: %w: %w", port, failed, errdefs.ErrUnavailable)
}

// addressTimeout bounds a connection to a pod of this node, which takes less than a
// millisecond where somebody answers.
const addressTimeout = 10 * time.Second

func dialOne(ctx context.Context, path string, to netip.AddrPort) (net.Conn, error) {
	family, sa := sockaddr(to)
	fd := -1
	err := InNetNS(path, func() (err error) {
		fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		return os.NewSyscallError("socket", err)
	})
	if err != nil {
		return nil, err
	}
	// The descriptor is non-blocking, so that the file uses the runtime's poller.
	f := os.NewFile(uintptr(fd), to.String())
	defer f.Close() // net.FileConn has made a copy, or there is an error already
	if err := connect(ctx, f, sa); err != nil {
		return nil, fmt.Errorf("%s: %w", to, err)
	}
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", to, err)
	}
	return conn, nil
}

func sockaddr(to netip.AddrPort) (family int, sa unix.Sockaddr) {
	if to.Addr().Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
}

// connect starts the connection and waits until it is made, refused, or ctx ends.
func connect(ctx context.Context, f *os.File, sa unix.Sockaddr) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	started := false
	var outcome error
	// The connection is started within Write, which forgets what the poller
	// reported before it.
	err = raw.Write(func(fd uintptr) (done bool) {
		if !started {
			started = true
			outcome = unix.Connect(int(fd), sa)
		} else {
			outcome = connected(int(fd))
		}
		return !errors.Is(outcome, unix.EINPROGRESS)
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	return os.NewSyscallError("connect", outcome)
}

// connected says how a connection went, or EINPROGRESS: the poller also wakes
// for a socket on which nothing has happened yet.
func connected(fd int) error {
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	switch {
	case err != nil:
		return err
	case code != 0:
		return unix.Errno(code)
	}
	if _, err := unix.Getpeername(fd); err != nil {
		return unix.EINPROGRESS
	}
	return nil
}
