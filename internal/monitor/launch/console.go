package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/monitor/wire"
)

// deliveryTimeout bounds the time from the first byte of a delivery to its end.
const deliveryTimeout = 10 * time.Second

// Console receives a terminal from a runtime, and what the runtime says
// meanwhile: with a terminal, its output is not the container's.
type Console struct {
	path     string
	listener *wire.Listener
	size     monitorv1.WindowSize
	master   chan int // one descriptor, or nothing
	arrived  func(fd int)
	said     *os.File // read end of the runtime's output
	output   chan []byte
}

// NewConsole listens, and puts the path of the socket into argv. It returns
// the descriptors for the runtime: input, output, error. arrived, unless it is
// nil, is called with the terminal's master end as soon as that is here.
func (l *Launcher) NewConsole(argv []string, size monitorv1.WindowSize, arrived func(fd int)) (*Console, []string, []int, error) {
	// Short, because the address of a socket holds 107 bytes.
	path := filepath.Join(l.ConsoleDir, fmt.Sprintf("%x", time.Now().UnixNano()))
	if len(path) > wire.MaxPath {
		return nil, nil, nil, fmt.Errorf("make console socket %s: the path is longer than %d bytes; choose a shorter state directory: %w", path, wire.MaxPath, errdefs.ErrPrecondition)
	}
	fd, err := wire.Listen(path)
	if err != nil {
		return nil, nil, nil, err
	}
	listener, err := wire.NewListener(os.NewFile(uintptr(fd), path))
	if err != nil {
		return nil, nil, nil, err
	}
	c := &Console{path: path, listener: listener, size: size, arrived: arrived, master: make(chan int, 1), output: make(chan []byte, 1)}
	ends, err := c.openEnds()
	if err != nil {
		c.Close()
		return nil, nil, nil, err
	}
	argv = slices.Clone(argv)
	for i, arg := range argv {
		argv[i] = strings.ReplaceAll(arg, monitorv1.ConsoleSocket, path)
	}
	l.Go(c.accept)
	l.Go(c.listen)
	return c, argv, ends, nil
}

func (c *Console) openEnds() ([]int, error) {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		_ = unix.Close(null)
		return nil, os.NewSyscallError("pipe2", err)
	}
	if err := unix.SetNonblock(pipe[0], true); err != nil {
		wire.CloseAll(append(pipe[:], null))
		return nil, os.NewSyscallError("fcntl", err)
	}
	c.said = os.NewFile(uintptr(pipe[0]), "output of the runtime")
	return []int{null, null, pipe[1]}, nil
}

// accept passes on the first descriptor that arrives.
func (c *Console) accept() {
	defer close(c.master)
	conn, err := c.listener.Accept()
	if err != nil {
		return // closed
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(deliveryTimeout))
	if fd, err := conn.RecvFD(); err == nil {
		// As early as can be: the container may ask for it at once. What is no
		// terminal is refused later.
		_ = setSize(fd, c.size)
		if c.arrived != nil {
			c.arrived(fd)
		}
		c.master <- fd
	}
}

// listen keeps the end of what the runtime says, however much it is.
func (c *Console) listen() {
	var tail []byte
	buf := make([]byte, 4096)
	for {
		n, err := c.said.Read(buf)
		tail = append(tail, buf[:n]...)
		tail = append(tail[:0], lastOf(tail)...)
		if err != nil {
			break
		}
	}
	c.output <- tail
}

// Quote returns the end of what the runtime said, once it has ended.
func (c *Console) Quote() []byte {
	// A process that the runtime left may still have the pipe.
	_ = c.said.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	return <-c.output
}

// Terminal returns the master end, after the runtime has ended well. What the
// runtime delivered waits in the socket by then, however late accept is: it is
// before the connection that is made here, after which nothing comes.
func (c *Console) Terminal() (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), deliveryTimeout)
	defer cancel()
	if last, err := wire.Dial(ctx, c.path); err == nil {
		_ = last.Close()
	}
	select {
	case fd, ok := <-c.master:
		if ok {
			return fd, setSize(fd, c.size)
		}
	case <-ctx.Done():
	}
	return -1, fmt.Errorf("the runtime delivered no terminal: is %s in the command?: %w", monitorv1.ConsoleSocket, errdefs.ErrInternal)
}

func setSize(fd int, size monitorv1.WindowSize) error {
	if size == (monitorv1.WindowSize{}) {
		return nil
	}
	err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: size.Width, Row: size.Height})
	if errors.Is(err, unix.ENOTTY) {
		return fmt.Errorf("the runtime delivered something that is no terminal: %w", errdefs.ErrInternal)
	}
	return os.NewSyscallError("set the size of the terminal", err)
}

// Close ends everything, and closes a terminal that nobody took.
func (c *Console) Close() {
	_ = c.listener.Close()
	_ = os.Remove(c.path)
	if c.said != nil {
		_ = c.said.Close()
	}
	select {
	case fd, ok := <-c.master:
		if ok {
			_ = unix.Close(fd)
		}
	default:
	}
}
