package lifecycle

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

func restoreOf(names ...string) pod.Restore {
	q := pod.Restore{From: "/from", Config: podConfig("restored")}
	for _, n := range names {
		q.Containers = append(q.Containers, containerConfig(n))
	}
	return q
}

func TestRestorePod(t *testing.T) {
	s := newStudio(t)
	id, got, err := s.RestorePod(ctx, restoreOf("b", "a"))
	if err != nil || len(got) != 2 || got[0].Name != "b" || got[1].Name != "a" {
		t.Fatalf("%v %v", got, err)
	}
	for _, r := range got {
		if ctr := state(t, s.Core, r.ID); ctr.State != pod.Created || ctr.Config.Restore != "/from/"+r.Name {
			t.Errorf("%+v", ctr)
		}
		if s.h.count("checkpoint.fits /from/"+r.Name+" /b") != 1 {
			t.Error("it was not compared")
		}
	}
	starts := s.h.count("start")
	if err := s.StartContainer(ctx, got[0].ID); err != nil || s.h.count("start") != starts+1 {
		t.Errorf("%v", err)
	}
	s.h.mu.Lock()
	from := s.h.restored
	s.h.mu.Unlock()
	if !slices.Equal(from, []string{"/images/" + string(got[0].ID)}) {
		t.Errorf("it goes on from %q", from)
	}
	if _, _, err := s.RestorePod(ctx, restoreOf("b", "a")); !errors.Is(err, errdefs.ErrAlreadyExists) {
		t.Errorf("into a pod that is there: %v", err)
	}
	if _, err := s.FindPod(string(id)); err != nil {
		t.Errorf("that pod is gone: %v", err)
	}
}

func TestRestoresThatAreRefused(t *testing.T) {
	s := newStudio(t)
	for name, q := range map[string]pod.Restore{"too few": restoreOf("a"), "twice": restoreOf("a", "a"), "unknown": restoreOf("a", "c"), "too many": restoreOf("a", "b", "c")} {
		if _, _, err := s.RestorePod(ctx, q); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.h.set(func() { s.h.able = false })
	if _, _, err := s.RestorePod(ctx, restoreOf("a", "b")); !errors.Is(err, errdefs.ErrUnimplemented) {
		t.Errorf("%v", err)
	}
	if n := len(s.Pods()); n != 1 {
		t.Errorf("there are %d pods", n)
	}
}

func TestFailedRestoreLeavesNothing(t *testing.T) {
	for _, step := range []string{"checkpoint.read", "net.attach", "root.mount", "checkpoint.fits /from/b /b", "root.restore"} {
		t.Run(step, func(t *testing.T) {
			s := newStudio(t)
			before := s.h.left()
			s.h.set(func() { s.h.fail[step] = errBoom })
			if _, _, err := s.RestorePod(ctx, restoreOf("a", "b")); !errors.Is(err, errBoom) || !strings.Contains(err.Error(), "restore pod default/restored") {
				t.Errorf("%v", err)
			}
			if left := s.h.left(); len(s.Pods()) != 1 || !slices.Equal(left, before) {
				t.Errorf("left: %v, before: %v", left, before)
			}
		})
	}
}
