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
	if _, err := s.FindPod(string(id)); err != nil {
		t.Errorf("that pod is gone: %v", err)
	}
}

// The same request again has the same result, whatever has become of the
// checkpoint, and another daemon knows it.
func TestRestorePodAgain(t *testing.T) {
	s := newStudio(t)
	id, made, err := s.RestorePod(ctx, restoreOf("b", "a"))
	if err != nil {
		t.Fatal(err)
	}
	same := func(when string) {
		t.Helper()
		again, got, err := s.RestorePod(ctx, restoreOf("b", "a"))
		if err != nil || again != id || !slices.Equal(got, made) {
			t.Errorf("%s: %s %v %v, want %s %v", when, again, got, err, id, made)
		}
	}
	same("at once")
	s.h.set(func() { s.h.fail["checkpoint.read"], s.h.able = errBoom, false })
	same("without the checkpoint")
	if err := s.StartContainer(ctx, made[0].ID); err != nil {
		t.Fatal(err)
	}
	same("with a container that runs")
	if _, err := s.CreateContainer(ctx, id, containerConfig("more")); err != nil {
		t.Fatal(err)
	}
	same("with one more container")
	s.kill()
	s.Core, _ = boot(t, s.h, s.disk)
	same("after a restart")
}

func TestRestoreIntoPodsThatDiffer(t *testing.T) {
	s := newStudio(t)
	if _, err := s.RunPod(ctx, podConfig("run"), ""); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.RestorePod(ctx, restoreOf("a", "b")); err != nil {
		t.Fatal(err)
	}
	stopped := restoreOf("a", "b")
	stopped.Config = podConfig("stopped")
	id, _, err := s.RestorePod(ctx, stopped)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.StopPod(ctx, id); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*pod.Restore){
		"run, not restored":     func(q *pod.Restore) { q.Config = podConfig("run") },
		"stopped":               func(q *pod.Restore) { *q = stopped },
		"another checkpoint":    func(q *pod.Restore) { q.From = "/other" },
		"another configuration": func(q *pod.Restore) { q.Config.Hostname = "other" },
		"another container":     func(q *pod.Restore) { q.Containers[1].Process.Command = []string{"other"} },
	} {
		q := restoreOf("a", "b")
		change(&q)
		if _, _, err := s.RestorePod(ctx, q); !errors.Is(err, errdefs.ErrAlreadyExists) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(s.Pods()); n != 4 {
		t.Errorf("there are %d pods", n)
	}
	if _, err := s.RunPod(ctx, restoreOf().Config, ""); !errors.Is(err, errdefs.ErrAlreadyExists) {
		t.Errorf("run a pod that was restored: %v", err)
	}
}

// What a killed daemon has not finished is finished, or removed if that fails; a
// pod that somebody uses stays.
func TestRestorePodGoesOn(t *testing.T) {
	for _, tt := range []struct {
		name  string
		start bool
		fails bool
		pods  int
	}{{"finished", false, false, 2}, {"removed", false, true, 1}, {"in use", true, true, 2}} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStudio(t)
			q := restoreOf("a", "b")
			cfg := q.Config
			cfg.Restore = q.From
			id, err := s.RunPod(ctx, cfg, "")
			if err != nil {
				t.Fatal(err)
			}
			a := q.Containers[0]
			a.Restore = "/from/a"
			first, err := s.CreateContainer(ctx, id, a)
			if err != nil {
				t.Fatal(err)
			}
			if tt.start {
				if err := s.StartContainer(ctx, first); err != nil {
					t.Fatal(err)
				}
			}
			if tt.fails {
				s.h.set(func() { s.h.fail["root.restore"] = errBoom })
			}
			got, made, err := s.RestorePod(ctx, q)
			if tt.fails != errors.Is(err, errBoom) || len(s.Pods()) != tt.pods {
				t.Errorf("%v, and there are %d pods", err, len(s.Pods()))
			}
			if !tt.fails && (got != id || len(made) != 2 || made[0].ID != first) {
				t.Errorf("%s %v, want %s with %s", got, made, id, first)
			}
		})
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
