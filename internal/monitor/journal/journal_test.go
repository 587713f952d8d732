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
	none := func(*Slot, Step) { t.Error("nothing was left") }
	p, err := Open(dir, none)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	var held []*Slot
	for range firstSlots + 2 { // the last ones after some patience
		s, err := p.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, s)
	}
	held[firstSlots].Arm(Step{ID: "left", Raw: 1, Out: 1})
	found := 0
	p, err = Open(dir, func(_ *Slot, s Step) {
		found++
		if s.ID != "left" {
			t.Errorf("found %+v", s)
		}
	})
	if err != nil || found != 1 {
		t.Fatalf("%d steps, %v", found, err)
	}
	if files, _ := os.ReadDir(dir); len(files) != firstSlots || p.made != firstSlots {
		t.Errorf("%d files, %d slots", len(files), p.made)
	}
	if _, err = Open(dir, none); err != nil {
		t.Fatal(err)
	}
}
