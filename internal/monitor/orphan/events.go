package orphan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The protocol of <linux/connector.h> and <linux/cn_proc.h>: a struct
// nlmsghdr, a struct cn_msg and a struct proc_event, all in the byte order of
// the machine.
const (
	groupProc   = 1 // CN_IDX_PROC, also CN_VAL_PROC
	listen      = 1 // PROC_CN_MCAST_LISTEN
	ignore      = 2 // PROC_CN_MCAST_IGNORE
	whatAck     = 0 // PROC_EVENT_NONE
	whatExec    = 2
	whatExit    = 0x80000000
	offsetWhat  = unix.SizeofNlMsghdr + 20
	offsetTime  = offsetWhat + 8
	offsetData  = offsetWhat + 16
	offsetTGID  = offsetData + 4
	offsetState = offsetData + 8
	eventLength = offsetData + 12
)

// bufferLength is how much the kernel keeps while nobody reads, in bytes as it
// counts them: some thousand events.
const bufferLength = 8 << 20

// ackLimit is for how long the kernel is waited for. One that refuses, because
// this is not the first namespace, says nothing.
const ackLimit = time.Second

// event is what the kernel reports.
type event struct {
	what      uint32
	pid, tgid int
	status    syscall.WaitStatus // of an exit
	refused   syscall.Errno      // of an acknowledgement
	at        time.Duration      // since boot, without the time of suspends
}

// openEvents makes a socket that gets the starts of programs and the ends of
// threads. The kernel still has to acknowledge it.
func openEvents() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_CONNECTOR)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), "process events")
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bufferLength)
	filter := eventFilter()
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	err = os.NewSyscallError("setsockopt", unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program))
	if err == nil {
		err = os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groupProc}))
	}
	if err == nil {
		err = ask(fd, listen)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("listen to process events: %w", err)
	}
	return f, nil
}

// eventFilter drops what nobody here reads, such as forks, in the kernel.
func eventFilter() []unix.SockFilter {
	// The filter loads in network order.
	swapped := func(n uint32) uint32 { return binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, n)) }
	equal := func(n uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: skip, K: swapped(n)}
	}
	return []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offsetWhat},
		equal(whatExit, 3),
		equal(whatExec, 2),
		equal(whatAck, 1),
		{Code: unix.BPF_RET | unix.BPF_K},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 16},
	}
}

// ask sends a request.
func ask(fd int, what uint32) error {
	order := binary.NativeEndian
	b := order.AppendUint32(nil, offsetWhat+4)
	b = order.AppendUint16(b, unix.NLMSG_DONE)
	b = append(b, make([]byte, 10)...) // flags, number, port
	b = order.AppendUint32(b, groupProc)
	b = order.AppendUint32(b, groupProc)
	b = append(b, make([]byte, 8)...) // number, acknowledged number
	b = order.AppendUint16(b, 4)
	b = append(b, 0, 0)
	b = order.AppendUint32(b, what)
	return os.NewSyscallError("sendto", unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
}

// errEmpty says that nothing is to be read now.
var errEmpty = errors.New("no event")

// next reads one event, and takes it from the queue only after note was called:
// who dies before that has lost nothing.
func next(fd int, note func(event)) error {
	buffer := make([]byte, 256)
	n, from, err := unix.Recvfrom(fd, buffer, unix.MSG_PEEK)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return errEmpty
	case errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return os.NewSyscallError("recvfrom", err)
	}
	if sender, ok := from.(*unix.SockaddrNetlink); ok && sender.Pid == 0 && n >= eventLength {
		note(parse(buffer[:n]))
	}
	_, _, err = unix.Recvfrom(fd, buffer, 0)
	return os.NewSyscallError("recvfrom", err)
}

// parse reads a message of at least eventLength bytes.
func parse(b []byte) event {
	order := binary.NativeEndian
	e := event{
		what: order.Uint32(b[offsetWhat:]),
		at:   time.Duration(order.Uint64(b[offsetTime:])),
	}
	if e.what == whatAck {
		e.refused = syscall.Errno(order.Uint32(b[offsetData:]))
		return e
	}
	e.pid, e.tgid = int(order.Uint32(b[offsetData:])), int(order.Uint32(b[offsetTGID:]))
	e.status = syscall.WaitStatus(order.Uint32(b[offsetState:]))
	return e
}

// when is the time of day of an event.
func (e event) when() time.Time {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return time.Now()
	}
	return time.Now().Add(e.at - time.Duration(now.Nano()))
}
