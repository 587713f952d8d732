package journal

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// reopened returns what a successor finds, after work was done to a slot whose
// process then died without a word.
func reopened(t *testing.T, work func(*Slot)) (*Slot, Step, bool) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "0")
	s, err := openSlot(path)
	if err != nil {
		t.Fatal(err)
	}
	work(s)
	s.close()
	s, err = openSlot(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	step, ok := s.Pending()
	return s, step, ok
}

func TestStepSurvives(t *testing.T) {
	want := Step{ID: "some-id", Stream: 2, Dev: 1 << 40, Ino: 7, Offset: 1 << 33, Raw: 11, Out: 5}
	raw := []byte("hello world")
	for consumed := range len(raw) + 1 {
		s, step, ok := reopened(t, func(s *Slot) {
			copy(s.Raw(), raw)
			_ = append(s.Out(), "entry"...)
			s.Arm(want)
			copy(s.Scratch(), raw[:consumed]) // as the read that consumes does
		})
		if !ok || step != want {
			t.Fatalf("found %+v %v", step, ok)
		}
		if got := s.Unconsumed(step); got != len(raw)-consumed {
			t.Errorf("after %d of %d bytes were consumed, %d are left", consumed, len(raw), got)
		}
		if !bytes.Equal(s.Entries(step.Out), []byte("entry")) {
			t.Errorf("entries %q", s.Entries(step.Out))
		}
	}
}

// One step takes the place of another in one moment: whatever of it was written
// when the process died, the one before is whole.
func TestStepReplaced(t *testing.T) {
	steps := []Step{
		{ID: "x", Stream: 1, Raw: 100, Consumed: true},
		{ID: "x", Stream: 1, Raw: 100, Consumed: true, Dev: 1, Ino: 2, Offset: 3, Out: 50, Done: 60},
		{ID: "x", Stream: 1, Raw: 100, Consumed: true, Done: 60},
		{ID: "x", Stream: 1, Raw: 100, Consumed: true, Dev: 1, Ino: 2, Offset: 53, Out: 40, Done: 100},
	}
	for n := range steps {
		_, step, ok := reopened(t, func(s *Slot) {
			s.Expect(Step{ID: "x", Stream: 1}, 100)
			for _, step := range steps[:n+1] {
				s.Arm(step)
			}
		})
		if !ok || step != steps[n] {
			t.Errorf("found %+v, not %+v", step, steps[n])
		}
		_, step, ok = reopened(t, func(s *Slot) {
			s.Expect(Step{ID: "x", Stream: 1}, 100)
			s.Arm(steps[n])
			s.put(0, Step{ID: "half of the next"})
		})
		if !ok || step != steps[n] {
			t.Errorf("while the next is written, found %+v, not %+v", step, steps[n])
		}
	}
}

func TestClearedAndUnused(t *testing.T) {
	if _, step, ok := reopened(t, func(*Slot) {}); ok {
		t.Errorf("a new slot has %+v", step)
	}
	if _, step, ok := reopened(t, func(s *Slot) { s.Arm(Step{ID: "x", Raw: 1, Out: 1}); s.Clear() }); ok {
		t.Errorf("a cleared slot has %+v", step)
	}
}

func TestExpect(t *testing.T) {
	for name, c := range map[string]struct {
		read string
		left int
	}{"nothing read": {"", 0}, "bytes": {"abc", 3}, "NUL within": {"a\x00c", 3}} {
		_, step, ok := reopened(t, func(s *Slot) {
			copy(s.Raw(), "old content of the slot")
			s.Expect(Step{ID: "x", Stream: 1}, 4096)
			copy(s.Raw(), c.read)
		})
		if ok != (c.left > 0) || ok && (step.Raw != c.left || step.Out != 0 || !step.Consumed) {
			t.Errorf("%s: %+v %v", name, step, ok)
		}
	}
}

func TestPool(t *testing.T) {
	dir := t.TempDir()
	none := func(*Slot, Step) bool { t.Error("nothing was left"); return false }
	p, err := Open(dir, none)
	if err != nil {
		t.Fatal(err)
	}
	held := acquire(t, p, firstSlots+2) // the last ones after some patience
	held[firstSlots].Arm(Step{ID: "left", Raw: 1, Out: 1})
	found := 0
	_, err = Open(dir, func(_ *Slot, s Step) bool {
		found++
		if s.ID != "left" {
			t.Errorf("found %+v", s)
		}
		return false
	})
	if err != nil || found != 1 {
		t.Fatalf("%d steps, %v", found, err)
	}
	files(t, dir, firstSlots)
	if _, err = Open(dir, none); err != nil {
		t.Fatal(err)
	}
}

func acquire(t *testing.T, p *Pool, n int) []*Slot {
	t.Helper()
	var held []*Slot
	for range n {
		s, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, s)
	}
	return held
}

func files(t *testing.T, dir string, want int) {
	t.Helper()
	if files, _ := os.ReadDir(dir); len(files) != want {
		t.Errorf("%d files of slots, not %d", len(files), want)
	}
}

// Those that a busy time needed are given up after it.
func TestPoolShrinks(t *testing.T) {
	dir := t.TempDir()
	p, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		held := acquire(t, p, firstSlots+2)
		files(t, dir, firstSlots+2)
		for _, s := range held {
			p.Release(s)
		}
		files(t, dir, firstSlots)
	}
}

// Slots that are held for long cost others nothing, and outlive the process.
func TestPoolLends(t *testing.T) {
	dir := t.TempDir()
	p, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	lent := acquire(t, p, firstSlots)
	for i, s := range lent {
		s.Arm(Step{ID: "stuck", Raw: i + 1, Consumed: true})
		p.Lend(s)
	}
	if p.made != 0 {
		t.Errorf("%d slots count while all are lent", p.made)
	}
	for _, s := range acquire(t, p, firstSlots) { // at once: there are few
		p.Release(s)
	}
	files(t, dir, 2*firstSlots)

	var kept []*Slot
	next, err := Open(dir, func(s *Slot, step Step) bool {
		kept = append(kept, s)
		return step.ID == "stuck"
	})
	if err != nil || len(kept) != firstSlots {
		t.Fatalf("%d slots found, %v", len(kept), err)
	}
	// A new slot may not take the file of one that is kept.
	for _, s := range acquire(t, next, firstSlots) {
		s.Arm(Step{ID: "other", Raw: 1, Out: 1})
		s.Clear()
		next.Release(s)
	}
	for _, s := range kept {
		if step, ok := s.Pending(); !ok || step.ID != "stuck" {
			t.Errorf("a kept slot has %+v", step)
		}
		s.Clear()
		next.Release(s)
	}
	files(t, dir, firstSlots)
}
