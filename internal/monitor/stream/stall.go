package stream

import (
	"context"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/monitor/linux"
)

// Stalls wakes copiers that wait for the rest of a line while the container
// waits for room in its FIFO.
//
// The kernel tells those who poll a pipe of what is written to it, with one
// exception: a single write that finds something there, and more than it leaves
// room for, fills the pipe and waits without a word to them. It does send
// SIGIO, to who asked for that.
type Stalls struct {
	mu      sync.Mutex
	waiting map[*Copier]bool
}

// NewStalls makes one for all copiers of a process.
func NewStalls() *Stalls { return &Stalls{waiting: map[*Copier]bool{}} }

// Run wakes them until ctx ends.
func (s *Stalls) Run(ctx context.Context) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGIO)
	defer signal.Stop(signals)
	for {
		select {
		case <-signals:
			s.wake()
		case <-ctx.Done():
			return
		}
	}
}

func (s *Stalls) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.waiting {
		c.kick()
	}
}

// begin asks for a signal when something is written to the copier's FIFO. It is
// called before the copier looks for the last time whether something was.
func (s *Stalls) begin(c *Copier) {
	s.mu.Lock()
	s.waiting[c] = true
	s.mu.Unlock()
	linux.SignalInput(c.fd, true)
}

func (s *Stalls) end(c *Copier) {
	linux.SignalInput(c.fd, false)
	s.mu.Lock()
	delete(s.waiting, c)
	s.mu.Unlock()
}
