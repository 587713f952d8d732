package stream

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"fairlead.run/internal/monitor/crilog"
	"fairlead.run/internal/monitor/journal"
	"fairlead.run/internal/monitor/linux"
)

// Config says what to copy from where to where.
type Config struct {
	ID      string
	Stream  crilog.Stream
	Source  *os.File // non-blocking; stays the caller's
	TTY     bool     // Source is a terminal's master, not a FIFO
	Log     *crilog.File
	MaxLine int
	Pool    *journal.Pool
	Fan     *Fan
	Stalls  *Stalls
	Resting func() bool // says whether ctx ended because a successor will go on
}

// errEnd says that the source has ended for good.
var errEnd = errors.New("end of output")

// Backoff while the log cannot be written.
const (
	firstPause = 50 * time.Millisecond
	maxPause   = 2 * time.Second
)

// Copier copies one stream.
type Copier struct {
	Config
	raw  syscall.RawConn
	fd   int
	wake chan struct{}

	ended       atomic.Bool  // the container's process has
	limit       atomic.Int64 // bytes to copy before waiting for Open; 0 is none
	problem     atomic.Pointer[string]
	drainedOnce sync.Once
	drained     chan struct{}

	// Only Run uses these.
	held int // bytes at the head of the FIFO that were looked at
	sent int // of those, bytes that attached callers have got

	hungUp bool // the terminal was seen open nowhere
	first  []unfinished

	copied atomic.Int64
	tail   []byte // the last bytes copied while there was a limit
}

// New prepares a copier.
func New(c Config) (*Copier, error) {
	raw, err := c.Source.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &Copier{
		Config:  c,
		raw:     raw,
		fd:      linux.RawFD(c.Source),
		wake:    make(chan struct{}, 1),
		drained: make(chan struct{}),
	}, nil
}

// Run copies until the source ends or ctx does. A log that cannot be written
// delays it and is reported by Problem.
func (c *Copier) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, c.kick)
	defer stop()
	defer c.markDrained()
	pause := firstPause
	if !c.finishFirst(ctx) {
		return nil
	}
	for ctx.Err() == nil {
		if c.AtLimit() {
			c.sleep(ctx, time.Hour)
			continue
		}
		ended := c.ended.Load()
		n, err := c.step(ctx, ended)
		switch {
		case errors.Is(err, errEnd):
			return nil
		case err != nil:
			text := err.Error()
			c.problem.Store(&text)
			c.sleep(ctx, pause)
			pause = min(2*pause, maxPause)
			continue
		}
		pause = firstPause
		if n > 0 {
			c.problem.Store(nil)
			c.copied.Add(int64(n))
			continue
		}
		if ended {
			c.markDrained()
		}
		if err := c.wait(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Copier) step(ctx context.Context, ended bool) (int, error) {
	if c.TTY {
		return c.stepTTY(ctx)
	}
	return c.stepFIFO(ctx, ended)
}

// wait blocks until the source holds more than was looked at, has ended, or
// kick is called.
func (c *Copier) wait() error {
	if c.held > 0 {
		c.Stalls.begin(c)
		defer c.Stalls.end(c)
	}
	err := c.raw.Read(func(fd uintptr) bool {
		n := linux.Buffered(int(fd))
		return n > c.held || (!c.hungUp && linux.HungUp(int(fd))) || (c.held > 0 && n < c.held)
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return c.Source.SetReadDeadline(time.Time{})
	}
	return err
}

// sleep waits for d, or for kick.
func (c *Copier) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.wake:
	case <-ctx.Done():
	}
}

// kick makes a waiting Run look at its flags again.
func (c *Copier) kick() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
	// Fails only when the source is closed, and then nobody waits for it.
	_ = c.Source.SetReadDeadline(time.Unix(1, 0))
}

// Ended tells the copier that the container's process has ended: what is there
// is all there will be from it, and an unterminated line is written.
func (c *Copier) Ended() {
	c.ended.Store(true)
	c.kick()
}

// Drained is closed once everything that the ended process wrote is copied.
func (c *Copier) Drained() <-chan struct{} { return c.drained }

func (c *Copier) markDrained() { c.drainedOnce.Do(func() { close(c.drained) }) }

// Limit lets the copier copy about n bytes and then wait for Open. It is
// called before Run.
func (c *Copier) Limit(n int64) { c.limit.Store(n) }

// Open removes the limit.
func (c *Copier) Open() {
	if c.limit.Swap(0) != 0 {
		c.kick()
	}
}

// AtLimit says whether the copier waits for Open.
func (c *Copier) AtLimit() bool {
	limit := c.limit.Load()
	return limit > 0 && c.copied.Load() >= limit
}

// Tail returns the last bytes that were copied before Open. It may be called
// once Run has returned.
func (c *Copier) Tail() []byte { return c.tail }

// maxTail is how much of the output of a runtime command its error can quote.
const maxTail = 2048

func (c *Copier) keepTail(p []byte) {
	if c.limit.Load() == 0 {
		c.tail = nil
		return
	}
	c.tail = append(c.tail, p...)
	if over := len(c.tail) - maxTail; over > 0 {
		c.tail = append(c.tail[:0], c.tail[over:]...)
	}
}

// Retry makes a copier that waits for its log try again now.
func (c *Copier) Retry() { c.kick() }

// Problem says why output is not reaching the log, or is empty.
func (c *Copier) Problem() string {
	if p := c.problem.Load(); p != nil {
		return *p
	}
	return ""
}
