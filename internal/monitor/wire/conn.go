package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrTooLarge says that a frame exceeds the bound of its receiver. The
// connection is of no use afterwards.
var ErrTooLarge = errors.New("frame too large")

// ErrMalformed says that a frame is not the JSON that was expected. The
// connection can go on.
var ErrMalformed = errors.New("malformed frame")

const headerSize = 4

// Conn is a connected unix stream socket. One goroutine at a time may receive;
// any number may send.
type Conn struct {
	file *os.File
	raw  syscall.RawConn
	send sync.Mutex
}

// NewConn takes over the descriptor fd.
func NewConn(fd int) (*Conn, error) {
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	f := os.NewFile(uintptr(fd), "unix socket")
	raw, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &Conn{file: f, raw: raw}, nil
}

// Pair returns the two ends of a new connection, as descriptors that are
// closed on exec.
func Pair() ([2]int, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	return fds, os.NewSyscallError("socketpair", err)
}

// Close closes the connection and wakes who sends or receives.
func (c *Conn) Close() error { return c.file.Close() }

// SetDeadline bounds sending and receiving; the zero time removes the bound.
func (c *Conn) SetDeadline(t time.Time) error { return c.file.SetDeadline(t) }

// SetReadDeadline is SetDeadline for receiving alone.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.file.SetReadDeadline(t) }

// FD returns the descriptor, which stays the connection's.
func (c *Conn) FD() int {
	fd := -1
	_ = c.raw.Control(func(p uintptr) { fd = int(p) })
	return fd
}

// PeerUID returns the user id of the process that connected.
func (c *Conn) PeerUID() (uint32, error) {
	var cred *unix.Ucred
	var err error
	if e := c.raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); e != nil {
		return 0, e
	}
	if err != nil {
		return 0, os.NewSyscallError("getsockopt", err)
	}
	return cred.Uid, nil
}

// Send sends v as one frame, with descriptors, which stay the caller's.
func (c *Conn) Send(v any, fds ...int) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode frame: %w", err)
	}
	frame := make([]byte, headerSize, headerSize+len(body))
	binary.BigEndian.PutUint32(frame, uint32(len(body)))
	frame = append(frame, body...)
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	c.send.Lock()
	defer c.send.Unlock()
	for len(frame) > 0 {
		n, err := c.sendmsg(frame, rights)
		if err != nil {
			return fmt.Errorf("send frame: %w", err)
		}
		frame, rights = frame[n:], nil
	}
	return nil
}

func (c *Conn) sendmsg(p, rights []byte) (int, error) {
	var n int
	var sent error
	err := c.raw.Write(func(fd uintptr) bool {
		for {
			n, sent = unix.SendmsgN(int(fd), p, rights, nil, unix.MSG_NOSIGNAL)
			if sent != unix.EINTR {
				return sent != unix.EAGAIN
			}
		}
	})
	if err != nil {
		return 0, err
	}
	return n, os.NewSyscallError("sendmsg", sent)
}

// Recv receives one frame of at most limit bytes into v and returns the
// descriptors that came with it, which become the caller's. They are bare
// numbers because an os.File of a terminal or FIFO would wake its holder at
// each byte that passes. Recv returns io.EOF when the other side has hung up
// between frames.
func (c *Conn) Recv(v any, limit int) ([]int, error) {
	r := receiver{conn: c}
	var header [headerSize]byte
	if err := r.full(header[:]); err != nil {
		r.discard()
		return nil, err
	}
	size := binary.BigEndian.Uint32(header[:])
	if uint64(size) > uint64(limit) {
		r.discard()
		return nil, fmt.Errorf("receive frame of %d bytes, of which %d are allowed: %w", size, limit, ErrTooLarge)
	}
	body := make([]byte, size)
	if err := r.full(body); err != nil {
		r.discard()
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	if err := json.Unmarshal(body, v); err != nil {
		r.discard()
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return r.fds, nil
}

// receiver collects one frame and the descriptors that come with its parts.
type receiver struct {
	conn *Conn
	fds  []int
}

func (r *receiver) discard() {
	CloseAll(r.fds)
	r.fds = nil
}

// RecvFD receives one descriptor from a peer that sends it with bytes of its
// own choice, as OCI runtimes send a terminal.
func (c *Conn) RecvFD() (int, error) {
	r := receiver{conn: c}
	var text [4096]byte
	for range maxRights {
		n, err := r.part(text[:])
		if len(r.fds) > 0 {
			CloseAll(r.fds[1:])
			return r.fds[0], nil
		}
		if err != nil {
			return -1, err
		}
		if n == 0 {
			return -1, io.ErrUnexpectedEOF
		}
	}
	return -1, ErrMalformed
}

// CloseAll closes descriptors that Recv returned and nobody wants.
func CloseAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

func (r *receiver) full(p []byte) error {
	for got := 0; got < len(p); {
		n, err := r.part(p[got:])
		switch {
		case err != nil:
			return fmt.Errorf("receive frame: %w", err)
		case n == 0 && got == 0:
			return io.EOF
		case n == 0:
			return io.ErrUnexpectedEOF
		}
		got += n
	}
	return nil
}

// maxRights is how many descriptors fit the buffer for them; the kernel closes
// what does not fit.
const maxRights = 16

func (r *receiver) part(p []byte) (int, error) {
	var oob [256]byte
	var n, oobn int
	var got error
	err := r.conn.raw.Read(func(fd uintptr) bool {
		for {
			n, oobn, _, _, got = unix.Recvmsg(int(fd), p, oob[:unix.CmsgSpace(4*maxRights)], unix.MSG_CMSG_CLOEXEC)
			if got != unix.EINTR {
				return got != unix.EAGAIN
			}
		}
	})
	if err != nil {
		return 0, err
	}
	if got != nil {
		return 0, os.NewSyscallError("recvmsg", got)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return 0, err
	}
	for i := range messages {
		if fds, err := unix.ParseUnixRights(&messages[i]); err == nil {
			r.fds = append(r.fds, fds...)
		}
	}
	return n, nil
}
