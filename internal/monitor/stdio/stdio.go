// Package stdio is the input and output of one container: its FIFOs or its
// terminal, its log, and the copying between them.
//
// It makes them for a new container and finds them again for one that an
// earlier monitor started. It does not know when a container starts or ends;
// it is told.
package stdio

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/filelabel"
	"fairlead.run/internal/monitor/crilog"
	"fairlead.run/internal/monitor/handover"
	"fairlead.run/internal/monitor/journal"
	"fairlead.run/internal/monitor/linux"
	"fairlead.run/internal/monitor/record"
	"fairlead.run/internal/monitor/stream"
)

// Host is what a container's input and output need of the process that they
// are in.
type Host struct {
	Link    *handover.Link
	Stalls  *stream.Stalls
	Log     *slog.Logger
	Resting func() bool                      // a successor is about to go on
	Spawn   func(work func(context.Context)) // runs work until then
}

// Stdio is the input and output of one container.
type Stdio struct {
	id      string
	spec    record.Spec
	host    Host
	log     *crilog.File
	fan     stream.Fan
	sources []*os.File // read ends of the FIFOs: output, error
	// unfinished gives the terminal's copier what an earlier monitor left.
	unfinished []func(*stream.Copier)

	mu      sync.Mutex
	copiers []*stream.Copier
	input   int // the FIFO's write end, -1 when there is none
	master  *os.File
	done    chan struct{} // closed when all copiers have ended
	stop    context.CancelFunc
}

// New prepares the input and output of a container; Create or Restore open it.
func New(id string, spec record.Spec, host Host) *Stdio {
	return &Stdio{id: id, spec: spec, host: host, input: -1, done: make(chan struct{}), stop: func() {}}
}

// The names of the FIFOs in the process's folder.
const (
	fifoIn  = "stdin"
	fifoOut = "stdout"
	fifoErr = "stderr"
)

func (s *Stdio) logTarget() crilog.Target {
	return crilog.Target{Dir: s.spec.LogDir, Path: s.spec.LogPath}
}

func (s *Stdio) path(name string) string { return filepath.Join(s.spec.IODir, name) }

// closeGrace bounds how long Close waits for a copier that hangs in the kernel.
const closeGrace = time.Second

// Create opens the log, makes the FIFOs and returns the container's ends:
// input, output, error. Close them with wire.CloseAll.
func (s *Stdio) Create() ([]int, error) {
	if s.spec.LogPath != "" {
		log, err := crilog.Open(s.logTarget())
		if err != nil {
			return nil, err
		}
		s.log = log
	}
	if s.spec.TTY {
		return nil, nil
	}
	if err := os.MkdirAll(s.spec.IODir, 0o700); err != nil {
		return nil, fmt.Errorf("make folder for FIFOs: %w", err)
	}
	var ends []int
	in, err := s.createInput()
	if err != nil {
		return nil, err
	}
	ends = append(ends, in)
	for _, name := range []string{fifoOut, fifoErr} {
		if err := s.makeFIFO(s.path(name)); err != nil {
			return ends, err
		}
		// For reading and writing: a container that keeps both ends never gets
		// SIGPIPE, whoever of the monitor is dead.
		fd, err := openEnd(s.path(name), unix.O_RDWR)
		if err != nil {
			return ends, fmt.Errorf("open FIFO %s: %w", s.path(name), err)
		}
		ends = append(ends, fd)
	}
	return ends, s.openOutputs()
}

func (s *Stdio) makeFIFO(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove old FIFO: %w", err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return fmt.Errorf("make FIFO %s: %w", path, err)
	}
	if owner := s.spec.Owner; owner != (monitorv1.Owner{}) {
		if err := os.Lchown(path, int(owner.UID), int(owner.GID)); err != nil {
			return err
		}
	}
	return filelabel.Set(path, s.spec.Label)
}

// openEnd opens a container's end of a FIFO, and no link in its place. That links
// are not followed must not be among the flags of the result: criu keeps these,
// and opens by them what it finds as a link when it restores the container.
func openEnd(path string, flags int) (int, error) {
	at, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(at) }()
	return unix.Open("/proc/self/fd/"+strconv.Itoa(at), flags|unix.O_CLOEXEC, 0)
}

// createInput returns the container's end of its input.
func (s *Stdio) createInput() (int, error) {
	if !s.spec.Stdin {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, fmt.Errorf("open %s: %w", os.DevNull, err)
		}
		return fd, nil
	}
	path := s.path(fifoIn)
	if err := s.makeFIFO(path); err != nil {
		return -1, err
	}
	// Read-only, so that the container sees the end of its input; not to block
	// here, and blocking for the container.
	fd, err := openEnd(path, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return -1, fmt.Errorf("open FIFO %s: %w", path, err)
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		_ = unix.Close(fd)
		return -1, os.NewSyscallError("fcntl", err)
	}
	if err := s.openInput(); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// openInput opens the write end of the input, which needs a reader, and lets
// the outer process hold it too.
func (s *Stdio) openInput() error {
	fd, err := unix.Open(s.path(fifoIn), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("open FIFO %s for writing: %w", s.path(fifoIn), err)
	}
	s.mu.Lock()
	s.input = fd
	s.mu.Unlock()
	s.host.Link.Hold(handover.KeyStdin+s.id, fd)
	return nil
}

// outputKeys are the keys of the sources. The outer process holds them too: a
// FIFO that nobody has open forgets what is in it.
var outputKeys = []string{handover.KeyStdout, handover.KeyStderr}

func (s *Stdio) openOutputs() error {
	for i, name := range []string{fifoOut, fifoErr} {
		if fd, ok := s.host.Link.Take(outputKeys[i] + s.id); ok {
			s.sources = append(s.sources, os.NewFile(uintptr(fd), s.path(name)))
			continue
		}
		fd, err := unix.Open(s.path(name), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err != nil {
			return fmt.Errorf("open FIFO %s: %w", s.path(name), err)
		}
		s.sources = append(s.sources, os.NewFile(uintptr(fd), s.path(name)))
		s.host.Link.Hold(outputKeys[i]+s.id, fd)
	}
	return nil
}

// SetMaster takes over the terminal's master end.
func (s *Stdio) SetMaster(fd int) error {
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return os.NewSyscallError("fcntl", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.master = os.NewFile(uintptr(fd), "terminal")
	return nil
}

// Start begins to copy. With a limit, each copier stops after about that many
// bytes until Open is called.
func (s *Stdio) Start(pool *journal.Pool, limit int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.copiers) > 0 {
		return nil
	}
	sources := s.sources
	if s.spec.TTY {
		sources = []*os.File{s.master}
	}
	for i, source := range sources {
		c, err := stream.New(stream.Config{
			ID: s.id, Stream: crilog.Stream(i + 1), Source: source, TTY: s.spec.TTY,
			Log: s.log, MaxLine: s.spec.LogMaxLine, Pool: pool, Fan: &s.fan,
			Stalls: s.host.Stalls, Resting: s.host.Resting,
		})
		if err != nil {
			return fmt.Errorf("copy output of container %s: %w", s.id, err)
		}
		c.Limit(limit)
		for _, give := range s.unfinished {
			give(c) // a terminal has one copier
		}
		s.copiers = append(s.copiers, c)
	}
	copiers := s.copiers
	ready := make(chan struct{})
	s.host.Spawn(func(ctx context.Context) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		s.stop = stop
		close(ready)
		s.copy(ctx, copiers)
	})
	<-ready
	return nil
}

// copy runs the copiers and ends when all have.
func (s *Stdio) copy(ctx context.Context, copiers []*stream.Copier) {
	defer close(s.done)
	var wg sync.WaitGroup
	for _, c := range copiers {
		wg.Go(func() {
			if err := c.Run(ctx); err != nil {
				s.host.Log.Error("output is not copied any more", "id", s.id, "stream", c.Stream.String(), "error", err)
			}
		})
	}
	wg.Wait()
	s.fan.End()
	if s.host.Resting() {
		return // the successor goes on with the same descriptors
	}
	s.closeSources()
	if err := s.log.Close(); err != nil {
		s.host.Log.Error("log not closed", "id", s.id, "error", err)
	}
}

func (s *Stdio) closeSources() {
	for i, f := range s.sources {
		s.host.Link.Drop(outputKeys[i] + s.id)
		_ = f.Close()
	}
}

// Open lets copiers that were started with a limit go on.
func (s *Stdio) Open() {
	for _, c := range s.running() {
		c.Open()
	}
}

func (s *Stdio) running() []*stream.Copier {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.copiers
}

// Drain waits until what the ended process wrote is copied, at most for limit.
func (s *Stdio) Drain(ctx context.Context, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for _, c := range s.running() {
		c.Ended()
	}
	for _, c := range s.running() {
		select {
		case <-c.Drained():
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Problem says why output is not reaching the log, or is empty.
func (s *Stdio) Problem() string {
	for _, c := range s.running() {
		if text := c.Problem(); text != "" {
			return text
		}
	}
	return ""
}

// Reopen opens the log anew. Whoever waits for the log to become writable
// tries at once.
func (s *Stdio) Reopen() error {
	select {
	case <-s.done:
		return nil // closed, complete
	default:
	}
	if err := s.log.Reopen(); err != nil {
		return err
	}
	for _, c := range s.running() {
		c.Retry()
	}
	return nil
}

// Resize sets the size of the container's terminal.
func (s *Stdio) Resize(size monitorv1.WindowSize) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.master == nil {
		return fmt.Errorf("resize terminal of container %s: it has none: %w", s.id, errdefs.ErrPrecondition)
	}
	return linux.SetWindowSize(s.master, size.Width, size.Height)
}

// InputFD returns a descriptor to write to, which becomes the caller's, or -1
// when the input is closed.
func (s *Stdio) InputFD() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.input
	if s.master != nil {
		from = linux.RawFD(s.master)
	}
	if from < 0 {
		return -1, nil
	}
	fd, err := unix.FcntlInt(uintptr(from), unix.F_DUPFD_CLOEXEC, 0)
	return fd, os.NewSyscallError("fcntl", err)
}

// CloseInput closes the input for good. A terminal has no end of input.
func (s *Stdio) CloseInput() {
	s.mu.Lock()
	fd := s.input
	s.input = -1
	s.mu.Unlock()
	if fd < 0 {
		return
	}
	s.host.Link.Drop(handover.KeyStdin + s.id)
	_ = unix.Close(fd)
}

// Close ends all copying and removes what Create made.
func (s *Stdio) Close() {
	s.CloseInput()
	s.mu.Lock()
	stop, started, master := s.stop, len(s.copiers) > 0, s.master
	s.mu.Unlock()
	stop()
	if started {
		select {
		case <-s.done:
		case <-time.After(closeGrace):
		}
	} else {
		s.closeSources()
		_ = s.log.Close()
	}
	if master != nil {
		s.host.Link.Drop(handover.KeyTTY + s.id)
		_ = master.Close()
	}
	if s.spec.IODir == "" {
		return
	}
	for _, name := range []string{fifoIn, fifoOut, fifoErr} {
		_ = os.Remove(s.path(name))
	}
	// Stays if the caller keeps something else there.
	_ = os.Remove(s.spec.IODir)
}

// Copying says whether Start was called.
func (s *Stdio) Copying() bool { return len(s.running()) > 0 }

// Stuck says whether a copier has reached its limit.
func (s *Stdio) Stuck() bool {
	for _, c := range s.running() {
		if c.AtLimit() {
			return true
		}
	}
	return false
}

// Waiting returns how many bytes the fuller FIFO holds.
func (s *Stdio) Waiting() int {
	n := 0
	for _, f := range s.sources {
		n = max(n, linux.Buffered(linux.RawFD(f)))
	}
	return n
}

// LastWords stops all copying and returns the end of what was written as error
// output, for a container that did not start.
func (s *Stdio) LastWords() []byte {
	if copiers := s.running(); len(copiers) > 0 {
		s.stop()
		select {
		case <-s.done:
			return copiers[len(copiers)-1].Tail()
		case <-time.After(closeGrace):
			return nil
		}
	}
	if len(s.sources) < int(crilog.Stderr) {
		return nil
	}
	said := make([]byte, 64<<10)
	n, err := linux.Read(linux.RawFD(s.sources[crilog.Stderr-1]), said)
	if err != nil {
		return nil
	}
	return said[:n]
}

// Attach adds attached callers to the output, from now on.
func (s *Stdio) Attach(sinks []*stream.Sink) {
	for _, sink := range sinks {
		s.fan.Add(sink)
	}
}

// Detach removes them.
func (s *Stdio) Detach(sinks []*stream.Sink) {
	for _, sink := range sinks {
		s.fan.Remove(sink)
	}
}
