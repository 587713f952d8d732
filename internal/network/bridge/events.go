package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// event is something that somebody did to the host's network.
type event struct {
	link  string // an interface of that name is gone
	table string // an nftables table of that name is gone
	lost  bool   // the kernel dropped events: anything may have happened
}

const (
	groupLink     = 1 << (unix.RTNLGRP_LINK - 1)
	groupNFTables = 1 << (unix.NFNLGRP_NFTABLES - 1)
	eventBuffer   = 1 << 20 // bytes the kernel may queue for a burst of pods
)

// watch is a subscription to the kernel's notifications.
type watch struct {
	file  *os.File
	parse func(syscall.NetlinkMessage) (event, bool)
}

func openWatch(protocol int, groups uint32, parse func(syscall.NetlinkMessage) (event, bool)) (*watch, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), "netlink events")
	// More than the default is welcome, not needed: lost events are noticed.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, eventBuffer)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return nil, errors.Join(fmt.Errorf("subscribe to network events: %w", err), f.Close())
	}
	return &watch{file: f, parse: parse}, nil
}

// run sends events until ctx ends. It closes the socket.
func (w *watch) run(ctx context.Context, to chan<- event) error {
	stop := context.AfterFunc(ctx, func() { _ = w.file.Close() })
	defer func() {
		if stop() {
			_ = w.file.Close() // only ever read
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := w.file.Read(buf)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			send(ctx, to, event{lost: true})
			continue
		case err != nil:
			return fmt.Errorf("read network events: %w", err)
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			send(ctx, to, event{lost: true})
			continue
		}
		for _, m := range messages {
			if e, ok := w.parse(m); ok {
				send(ctx, to, e)
			}
		}
	}
}

func send(ctx context.Context, to chan<- event, e event) {
	select {
	case to <- e:
	case <-ctx.Done():
	}
}

// linkGone understands RTM_DELLINK. With the family AF_BRIDGE it only says that
// an interface left its bridge.
func linkGone(m syscall.NetlinkMessage) (event, bool) {
	if m.Header.Type != unix.RTM_DELLINK || len(m.Data) == 0 || m.Data[0] != unix.AF_UNSPEC {
		return event{}, false
	}
	attrs, err := syscall.ParseNetlinkRouteAttr(&m)
	if err != nil {
		return event{}, false
	}
	for _, a := range attrs {
		if a.Attr.Type == unix.IFLA_IFNAME {
			return event{link: string(bytes.TrimRight(a.Value, "\x00"))}, true
		}
	}
	return event{}, false
}

// tableGone understands NFT_MSG_DELTABLE.
func tableGone(m syscall.NetlinkMessage) (event, bool) {
	const headers = 4 + 4 // nfgenmsg, and that of the first attribute, the name
	if m.Header.Type != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_DELTABLE || len(m.Data) <= headers {
		return event{}, false
	}
	name, _, _ := bytes.Cut(m.Data[headers:], []byte{0})
	return event{table: string(name)}, true
}
