package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// Bounds of the number of slots. A slot is held for microseconds, but one whose
// log hangs in the kernel is held for as long as that takes, so more are made
// when all have been busy for a while.
const (
	firstSlots = 4
	maxSlots   = 256
	patience   = 100 * time.Millisecond
)

// Pool hands out slots.
type Pool struct {
	dir  string
	free chan *Slot

	mu   sync.Mutex
	made int // that are there, without those that are lent
	next int // the name of the next one
}

// Open maps the slots in dir, and gives each that was left in the middle of a
// step to finish, which shall complete the step. If it cannot yet, it returns
// true and keeps the slot, for which the rules of Lend hold.
func Open(dir string, finish func(*Slot, Step) (kept bool)) (*Pool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make folder for journal: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	p := &Pool{dir: dir, free: make(chan *Slot, maxSlots)}
	for _, e := range entries {
		if err := p.finishOld(e.Name(), finish); err != nil {
			return nil, err
		}
	}
	if p.made == 0 {
		return p, p.add()
	}
	return p, nil
}

// finishOld completes what is in one slot, and keeps it if it is one of the
// first few.
func (p *Pool) finishOld(name string, finish func(*Slot, Step) bool) error {
	s, err := openSlot(filepath.Join(p.dir, name))
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(name)
	if err == nil {
		p.next = max(p.next, n+1)
	}
	if step, ok := s.Pending(); ok && finish(s, step) {
		s.lent = true
		return nil
	}
	s.Clear()
	if err == nil && p.made < firstSlots {
		p.made++
		p.free <- s
		return nil
	}
	return s.discard()
}

// add makes one more slot.
func (p *Pool) add() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made == maxSlots {
		return errors.New("all journal slots are in use")
	}
	s, err := openSlot(filepath.Join(p.dir, strconv.Itoa(p.next)))
	if err != nil {
		return err
	}
	p.next++
	p.made++
	p.free <- s
	return nil
}

// Acquire waits for a slot.
func (p *Pool) Acquire(ctx context.Context) (*Slot, error) {
	for {
		select {
		case s := <-p.free:
			return s, nil
		default:
		}
		if p.few() {
			if err := p.add(); err != nil {
				return nil, err
			}
			continue
		}
		timer := time.NewTimer(patience)
		select {
		case s := <-p.free:
			timer.Stop()
			return s, nil
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		case <-timer.C:
			if err := p.add(); err != nil {
				return nil, err
			}
		}
	}
}

func (p *Pool) few() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.made < firstSlots
}

// Lend tells that a slot will be held for nobody knows how long. It does not
// count from then on, so others do not run out of slots for it. It is either
// released, or left as it is for a successor of this process.
func (p *Pool) Lend(s *Slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !s.lent {
		s.lent = true
		p.made--
	}
}

// Release gives a cleared slot back. More than the first few are not kept once
// they are not needed any more.
func (p *Pool) Release(s *Slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !s.lent && len(p.free) < firstSlots {
		p.free <- s
		return
	}
	if !s.lent {
		p.made--
	}
	// What is left of a slot that cannot be removed is empty.
	_ = s.discard()
}
