package runtimetest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

func isKind(err, kind error) bool { return errors.Is(err, kind) }

func exitCode(ctx context.Context, s *scene) {
	before := time.Now()
	b := s.script("echo to-stdout; echo to-stderr >&2; exit 7").start(ctx)
	e := b.exit(ctx)
	if e.Code != 7 || e.Signal != 0 || e.OOMKilled || e.Lost {
		s.Errorf("exit is %+v", e)
	}
	if e.FinishedAt.Before(before) || e.FinishedAt.After(time.Now()) {
		s.Errorf("ended at %s, which is not between start and now", e.FinishedAt)
	}
	b.said(ctx, "to-stdout")
	b.said(ctx, "to-stderr")
	s.must(s.h.Delete(ctx, string(b.ID)))
}

func signalEnds(ctx context.Context, s *scene) {
	// The first process of a PID namespace ignores all but SIGKILL.
	b := s.box("/bin/sleep", "1000").start(ctx)
	s.must(s.h.Kill(ctx, b.Container, "SIGKILL", false))
	if e := b.exit(ctx); e.Code != 137 || e.Signal != int(syscall.SIGKILL) {
		s.Errorf("exit is %+v", e)
	}
}

func signalCaught(ctx context.Context, s *scene) {
	for _, name := range []string{"SIGTERM", "term", "15"} {
		b := s.script("trap 'exit 3' TERM; echo ready; while :; do sleep 0.02; done").start(ctx)
		b.said(ctx, "ready")
		s.must(s.h.Kill(ctx, b.Container, name, false))
		if e := b.exit(ctx); e.Code != 3 {
			s.Errorf("after %s exit is %+v", name, e)
		}
	}
}

func unknownSignal(ctx context.Context, s *scene) {
	b := s.box("/bin/sleep", "1000").start(ctx)
	for _, name := range []string{"SIGNOPE", "", "0", "65", "-9", "SIGRTMIN+99"} {
		s.fails(s.h.Kill(ctx, b.Container, name, false), errdefs.ErrInvalidArgument, string(b.ID))
	}
}

func killGone(ctx context.Context, s *scene) {
	b := s.script("exit 0").start(ctx)
	b.exit(ctx)
	s.must(s.h.Kill(ctx, b.Container, "SIGTERM", false))
	s.must(s.h.Kill(ctx, b.Container, "SIGKILL", true))
	s.must(s.h.Kill(ctx, &pod.Container{ID: pod.NewContainerID()}, "SIGKILL", true))
}

func startJoins(ctx context.Context, s *scene) {
	b := s.box("/bin/sleep", "1000").start(ctx)
	again, err := s.h.Start(ctx, b.request())
	s.must(err)
	if again != *b.Process {
		s.Errorf("the second start returned %+v, the first %+v", again, *b.Process)
	}
}

func startEnded(ctx context.Context, s *scene) {
	b := s.script("exit 5").start(ctx)
	b.exit(ctx)
	again, err := s.h.Start(ctx, b.request())
	s.must(err)
	if again.PID != b.Process.PID {
		s.Errorf("the second start returned %+v, the first %+v", again, *b.Process)
	}
	if e := b.exit(ctx); e.Code != 5 {
		s.Errorf("exit is %+v", e)
	}
}

func missingProgram(ctx context.Context, s *scene) {
	b := s.box("/no/such/program")
	_, err := s.h.Start(ctx, b.request())
	s.fails(err, errdefs.ErrInvalidArgument, string(b.ID), s.h.Info().Name, `"/no/such/program"`)
	b.noCgroup()
	// Nothing in the way of another try.
	b.spec.Process.Args = []string{"/bin/true"}
	b.write()
	if e := b.start(ctx).exit(ctx); e.Code != 0 {
		s.Errorf("after the program was there, exit is %+v", e)
	}
}

func missingInPath(ctx context.Context, s *scene) {
	b := s.box("no-such-program")
	_, err := s.h.Start(ctx, b.request())
	s.fails(err, errdefs.ErrInvalidArgument, `"no-such-program"`, "PATH (/bin)")
}

func startFails(ctx context.Context, s *scene) {
	b := s.box("/bin/true")
	mounts := b.spec.Mounts
	b.spec.Mounts = append(mounts[:len(mounts):len(mounts)], specs.Mount{Destination: "/x", Type: "bind", Source: "/no/such/source", Options: []string{"bind"}})
	b.write()
	_, err := s.h.Start(ctx, b.request())
	s.fails(err, nil, string(b.ID), "/no/such/source")
	b.noCgroup()
	b.spec.Mounts = mounts
	b.write()
	b.start(ctx).exit(ctx)
}

func unwritableLog(ctx context.Context, s *scene) {
	b := s.box("/bin/true")
	b.log = "/proc/no/such/log"
	_, err := s.h.Start(ctx, b.request())
	s.fails(err, nil, string(b.ID), "/proc/no/such")
	b.noCgroup()
	b.log = filepath.Join(s.TempDir(), "log")
	b.start(ctx).exit(ctx)
}

func startParallel(ctx context.Context, s *scene) {
	var all sync.WaitGroup
	for range 8 {
		b := s.script("exit 4")
		all.Go(func() {
			p, err := s.h.Start(ctx, b.request())
			if err != nil {
				s.Error(err)
				return
			}
			b.Process = &p
		})
		s.Cleanup(func() {
			if e := b.exit(context.WithoutCancel(ctx)); e.Code != 4 {
				s.Errorf("exit is %+v", e)
			}
		})
	}
	all.Wait()
}

// startInVain fails if a start whose caller has no time left leaves a container.
func startInVain(ctx context.Context, s *scene) {
	b := s.box("/bin/sleep", "1000")
	for _, time := range []time.Duration{0, time.Millisecond, 4 * time.Millisecond} {
		brief, cancel := context.WithTimeout(ctx, time)
		p, err := s.h.Start(brief, b.request())
		cancel()
		if err != nil {
			b.noCgroup()
			continue
		}
		b.Process = &p
		break
	}
	if b.Process == nil {
		b.start(ctx)
	}
	if seen := s.h.Observe(ctx, string(b.ID), b.Process); !seen.Alive {
		s.Errorf("after starts that were cut off it is seen as %+v", seen)
	}
}

func stdinEmpty(ctx context.Context, s *scene) {
	b := s.script("cat; echo end-of-input").start(ctx)
	b.said(ctx, "end-of-input")
}

func terminal(ctx context.Context, s *scene) {
	b := s.script("test -t 0 && test -t 1 && test -t 2 && echo on-a-terminal")
	b.spec.Process.Terminal = true
	b.write()
	b.start(ctx)
	b.said(ctx, "on-a-terminal")
	if e := b.exit(ctx); e.Code != 0 {
		s.Errorf("exit is %+v", e)
	}
}

func observeStartTime(ctx context.Context, s *scene) {
	b := s.box("/bin/sleep", "1000").start(ctx)
	if seen := s.h.Observe(ctx, string(b.ID), b.Process); !seen.Alive || seen.Err != nil {
		s.Fatalf("a live process is seen as %+v", seen)
	}
	// A process that has got the pid of one that ended is another one.
	self := &pod.RunningProcess{PID: os.Getpid(), StartTime: 1}
	if seen := s.h.Observe(ctx, string(pod.NewContainerID()), self); seen.Alive {
		s.Error("another process with the same pid counts as the container's")
	}
	if err := s.h.Kill(ctx, &pod.Container{ID: pod.NewContainerID(), Process: self}, "SIGKILL", false); err != nil {
		s.Error(err)
	}
}

func observeUnknown(ctx context.Context, s *scene) {
	seen := s.h.Observe(ctx, string(pod.NewContainerID()), nil)
	if seen.Alive || seen.Exit != nil || seen.Err != nil {
		s.Errorf("an unknown container is seen as %+v", seen)
	}
	// A start that was not recorded.
	b := s.box("/bin/sleep", "1000").start(ctx)
	if seen := s.h.Observe(ctx, string(b.ID), nil); !seen.Alive {
		s.Errorf("a container whose process was not recorded is seen as %+v", seen)
	}
	unrecorded := &pod.Container{ID: b.ID}
	s.must(s.h.Kill(ctx, unrecorded, "SIGKILL", false))
	if e := b.exit(ctx); e.Code != 137 {
		s.Errorf("exit is %+v", e)
	}
}

func reopened(ctx context.Context, s *scene) {
	b := s.script("trap 'exit 3' TERM; echo ready; while :; do sleep 0.02; done").start(ctx)
	b.said(ctx, "ready")
	s.h = s.s.Open(s.T)
	if seen := s.h.Observe(ctx, string(b.ID), b.Process); !seen.Alive {
		s.Fatalf("a new handler sees a live process as %+v", seen)
	}
	if out, _ := b.exec(ctx, "/bin/echo", "hello"); out != "hello\n" {
		s.Errorf("exec by a new handler prints %q", out)
	}
	s.must(s.h.Kill(ctx, b.Container, "SIGTERM", false))
	if e := b.exit(ctx); e.Code != 3 {
		s.Errorf("exit is %+v", e)
	}
	s.must(s.h.Delete(ctx, string(b.ID)))
}

// recursiveReadOnly fails if a handler promises recursive read-only mounts and
// leaves a mount below writable.
func recursiveReadOnly(ctx context.Context, s *scene) {
	if !s.h.Info().Features.RecursiveReadOnlyMounts {
		s.Skip("the handler does not promise it")
	}
	outer := s.TempDir()
	inner := filepath.Join(outer, "inner")
	s.must(os.Mkdir(inner, 0o755))
	s.must(syscall.Mount("tmpfs", inner, "tmpfs", 0, "size=64k"))
	s.Cleanup(func() { _ = syscall.Unmount(inner, syscall.MNT_DETACH) })
	b := s.script("touch /x/inner/f && exit 9; exit 0")
	b.spec.Mounts = append(b.spec.Mounts, specs.Mount{Destination: "/x", Type: "bind", Source: outer, Options: []string{"rbind", "rro"}})
	b.write()
	if e := b.start(ctx).exit(ctx); e.Code != 0 {
		s.Errorf("a file could be made on the mount below: exit %+v", e)
	}
}
