// Package sentry talks to the process in which gVisor runs a pod, over the socket
// on which that process takes orders: it waits for containers, signals and measures
// them and reaches their ports, without a run of gVisor's command line for each
// call.
//
// It starts no sandbox and keeps no record. The daemon uses it, and the small
// process of the monitor that stands in for a container on the host.
package sentry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"fairlead.run/internal/errdefs"
)

// places are where runsc puts the socket if it cannot have one in its root.
var places = []string{"/var/run", "/run", "/tmp"}

// Socket finds the socket of a sandbox whose runsc has that root. It says
// errdefs.ErrNotFound if there is none.
func Socket(root, sandbox string) (string, error) {
	for _, dir := range append([]string{root}, places...) {
		path := filepath.Join(dir, "runsc-"+sandbox+".sock")
		info, err := os.Lstat(path)
		if err != nil || info.Mode().Type() != os.ModeSocket {
			continue
		}
		// Anybody may put a socket into /tmp.
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid == uint32(os.Geteuid()) {
			return path, nil
		}
	}
	return "", fmt.Errorf("sandbox %s has no socket below %s: %w", sandbox, root, errdefs.ErrNotFound)
}

// Status is how a process ended, as wait(2) has it.
type Status = syscall.WaitStatus

// Wait waits until a container has ended. It may be asked again, and by several.
// A sandbox that ends first is errdefs.ErrUnavailable.
func Wait(ctx context.Context, socket, container string) (Status, error) {
	var status uint32
	if err := call(ctx, socket, request{"containerManager.Wait", container, nil}, &status); err != nil {
		return 0, fmt.Errorf("wait for container %s in its sandbox: %w", container, err)
	}
	return Status(status), nil
}

// Who gets a signal.
const (
	toFirst = 0 // the container's first process
	toAll   = 1 // all its processes
)

// signalArgs has the names that the sandbox reads.
type signalArgs struct {
	CID   string
	Signo int32
	PID   int32
	Mode  int
}

// Signal sends a signal to a container's first process, or to all of them.
func Signal(ctx context.Context, socket, container string, sig syscall.Signal, all bool) error {
	args := signalArgs{CID: container, Signo: int32(sig), Mode: toFirst}
	if all {
		args.Mode = toAll
	}
	if err := call(ctx, socket, request{"containerManager.Signal", &args, nil}, nil); err != nil {
		return fmt.Errorf("send signal %d to container %s in its sandbox: %w", sig, container, err)
	}
	return nil
}

// forwardArgs has the names that the sandbox reads.
type forwardArgs struct {
	ContainerID string
	Port        uint16
}

// Forward connects to a TCP port on the sandbox's own localhost. Its network is
// inside it: from the host's side of the namespace nothing listens there.
func Forward(ctx context.Context, socket, container string, port uint16) (_ net.Conn, err error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "the sandbox's")
	defer ours.Close() // net.FileConn makes a copy
	defer theirs.Close()
	if err := call(ctx, socket, request{"containerManager.PortForward", &forwardArgs{container, port}, syscall.UnixRights(pair[1])}, nil); err != nil {
		return nil, fmt.Errorf("connect to port %d in the sandbox: %w", port, err)
	}
	return net.FileConn(ours)
}

// refusal is what the sandbox answers instead of a result.
type refusal string

func (r refusal) Error() string { return "it says: " + string(r) }

func (r refusal) Unwrap() error { return errdefs.ErrPrecondition }

// dialLimit bounds the connecting. The sandbox takes a connection at once, unless
// it is stopped.
const dialLimit = 5 * time.Second

// maxAnswer bounds what is read of an answer, in bytes. The longest, the usage of
// hundreds of containers, has some 100 KiB.
const maxAnswer = 4 << 20

// request has the names that the sandbox reads.
type request struct {
	Method string `json:"method"`
	Arg    any    `json:"arg"`
	rights []byte // the descriptors that go with it, as sendmsg(2) has them
}

// call makes one request on a connection of its own: the sandbox answers those on
// one connection one after the other, and a Wait may take days.
func call(ctx context.Context, socket string, r request, result any) error {
	conn, err := dial(ctx, socket)
	if err != nil {
		return unreachable(ctx, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the request %s: %w", r.Method, err)
	}
	if _, _, err := conn.WriteMsgUnix(text, r.rights, nil); err != nil {
		return unreachable(ctx, err)
	}
	answer := struct {
		Success bool   `json:"success"`
		Err     string `json:"err"`
		Result  any    `json:"result"`
	}{Result: result}
	if err := json.NewDecoder(io.LimitReader(conn, maxAnswer)).Decode(&answer); err != nil {
		return unreachable(ctx, err)
	}
	if !answer.Success {
		return refusal(answer.Err)
	}
	return nil
}

// dial connects by way of the folder, because runsc binds its sockets in such a
// way and does not mind paths that are too long for the address of a socket.
func dial(ctx context.Context, socket string) (*net.UnixConn, error) {
	dir, err := os.Open(filepath.Dir(socket))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	dialer := net.Dialer{Timeout: dialLimit}
	conn, err := dialer.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(socket)))
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

func unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("the sandbox does not answer: %w: %w", errdefs.ErrUnavailable, err)
}

// Refused says whether the sandbox was there and did not do what it was asked for:
// a container that has ended, for example, takes no signals.
func Refused(err error) bool {
	var r refusal
	return errors.As(err, &r)
}
