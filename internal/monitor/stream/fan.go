package stream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/monitor/crilog"
)

// maxQueue is how many bytes an attached caller may lag behind, beside what
// its pipe holds, before it is cut off.
const maxQueue = 4 << 20

// Fan passes the output of a container on to those attached. Its zero value
// has nobody.
type Fan struct {
	mu    sync.Mutex
	ended bool
	sinks atomic.Pointer[[]*Sink]
}

// Write queues p for everyone attached to the stream. It never blocks.
func (f *Fan) Write(from crilog.Stream, p []byte) {
	sinks := f.sinks.Load()
	if sinks == nil || len(p) == 0 {
		return
	}
	for _, s := range *sinks {
		if s.from == from {
			s.write(p)
		}
	}
}

// Add attaches a sink from now on. If the output has ended, so has the sink.
func (f *Fan) Add(s *Sink) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		s.end()
		return
	}
	var all []*Sink
	if old := f.sinks.Load(); old != nil {
		all = slices.Clone(*old)
	}
	all = append(all, s)
	f.sinks.Store(&all)
}

// Remove detaches a sink.
func (f *Fan) Remove(s *Sink) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.sinks.Load()
	if old == nil {
		return
	}
	all := slices.DeleteFunc(slices.Clone(*old), func(o *Sink) bool { return o == s })
	if len(all) == 0 {
		f.sinks.Store(nil)
		return
	}
	f.sinks.Store(&all)
}

// End tells everyone attached that no more output comes.
func (f *Fan) End() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	if sinks := f.sinks.Load(); sinks != nil {
		for _, s := range *sinks {
			s.end()
		}
	}
}

// Sink is one stream of one attached caller.
type Sink struct {
	from crilog.Stream
	to   *os.File

	mu    sync.Mutex
	queue []byte
	over  bool // nothing will be added
	slow  bool // it ended because the queue was full
	more  chan struct{}
}

// NewSink passes from on to the file, a pipe's non-blocking write end, which
// Run closes.
func NewSink(from crilog.Stream, to *os.File) *Sink {
	return &Sink{from: from, to: to, more: make(chan struct{}, 1)}
}

// SinksOf makes the sinks of a request from the descriptors that came with it, which
// become theirs unless it fails.
func SinksOf(req *monitorv1.AttachRequest, fds []int) ([]*Sink, error) {
	var from []crilog.Stream
	if req.Stdout {
		from = append(from, crilog.Stdout)
	}
	if req.Stderr {
		from = append(from, crilog.Stderr)
	}
	if len(fds) != len(from) {
		return nil, fmt.Errorf("attach to container %s: the request asks for %d streams and came with %d descriptors: %w", req.ID, len(from), len(fds), errdefs.ErrInvalidArgument)
	}
	var sinks []*Sink
	for i, fd := range fds {
		_ = unix.SetNonblock(fd, true)
		sinks = append(sinks, NewSink(from[i], os.NewFile(uintptr(fd), "attached caller")))
	}
	return sinks, nil
}

// Close closes the file of a sink that Run is never called for.
func (s *Sink) Close() error { return s.to.Close() }

func (s *Sink) write(p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	if len(s.queue)+len(p) > maxQueue {
		s.over, s.slow = true, true
		// Wakes a Run that is waiting for the caller to read.
		_ = s.to.SetWriteDeadline(time.Unix(1, 0))
	} else {
		s.queue = append(s.queue, p...)
	}
	s.wake()
}

func (s *Sink) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.wake()
}

func (s *Sink) wake() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// Run writes to the caller until the output ends, the caller or ctx does, or
// the caller lags too far behind, which is an error.
func (s *Sink) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.to.Close() })
	defer stop()
	defer func() { _ = s.to.Close() }()
	for {
		chunk, over, slow := s.take()
		if slow {
			return fmt.Errorf("pass %s on: the attached caller is more than %d bytes behind: %w", s.from, maxQueue, errdefs.ErrExhausted)
		}
		if len(chunk) > 0 {
			_, err := s.to.Write(chunk)
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				return nil // the caller has closed its end: it does not want more
			}
			continue
		}
		if over {
			return nil
		}
		select {
		case <-s.more:
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *Sink) take() (chunk []byte, over, slow bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	chunk, s.queue = s.queue, nil
	return chunk, s.over, s.slow
}
