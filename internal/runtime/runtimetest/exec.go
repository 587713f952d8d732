package runtimetest

import (
	"context"
	"io"
	"os"
	"strings"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

func execRuns(ctx context.Context, s *scene) {
	b := s.box("/bin/sleep", "1000").start(ctx)
	out, exit := b.exec(ctx, "/bin/sh", "-c", "echo out; echo err >&2; exit 6")
	if s.s.Split && out == "err\nout\n" {
		out = "out\nerr\n"
	}
	if out != "out\nerr\n" || exit.Code != 6 {
		s.Errorf("output %q, exit %+v", out, exit)
	}
	if _, exit := b.exec(ctx, "/bin/sh", "-c", "kill -KILL $$"); exit.Code != 137 || exit.Signal != 9 {
		s.Errorf("after SIGKILL, exit is %+v", exit)
	}
	// Input goes in, and its end too.
	in, feed, err := os.Pipe()
	s.must(err)
	r, w, err := os.Pipe()
	s.must(err)
	defer r.Close()
	x, err := s.h.Exec(ctx, pod.ExecRequest{Container: b.Container, Command: []string{"/bin/cat"}, Stdio: [3]*os.File{in, w, nil}})
	s.must(in.Close())
	s.must(w.Close())
	s.must(err)
	_, err = feed.WriteString("through\n")
	s.must(err)
	s.must(feed.Close())
	text, err := io.ReadAll(r)
	s.must(err)
	if string(text) != "through\n" {
		s.Errorf("cat printed %q", text)
	}
	_, err = x.Wait(ctx)
	s.must(err)
	s.must(x.Close(ctx))
	if seen := s.h.Observe(ctx, string(b.ID), b.Process); !seen.Alive {
		s.Error("the container has ended with its exec")
	}
}

// execSame fails if an exec has other rights than the container.
func execSame(ctx context.Context, s *scene) {
	b := s.box("/bin/sleep", "1000")
	b.spec.Process.User.UID, b.spec.Process.User.GID = 1234, 2345
	b.spec.Process.User.AdditionalGids = []uint32{3456}
	b.spec.Process.Cwd = "/tmp"
	b.write()
	b.start(ctx)
	out, exit := b.exec(ctx, "sh", "-c", "id -u; id -g; id -G; pwd; echo $FROM; cat /proc/self/status")
	if exit.Code != 0 {
		s.Fatalf("exit %+v: %s", exit, out)
	}
	for _, want := range []string{"1234\n2345\n", "3456", "/tmp\nspec\n", "NoNewPrivs:\t1", "CapBnd:\t0000000000000000", "CapEff:\t0000000000000000"} {
		if !strings.Contains(out, want) {
			s.Errorf("exec lacks %q: %s", want, out)
		}
	}
}

func execTerminal(ctx context.Context, s *scene) {
	b := s.box("/bin/sleep", "1000").start(ctx)
	x, err := s.h.Exec(ctx, pod.ExecRequest{Container: b.Container, Command: []string{"sh", "-c", "test -t 0 && test -t 1 && echo terminal=$TERM; read line; echo got $line"}, TTY: true})
	s.must(err)
	if x.TTY() == nil {
		s.Fatal("there is no terminal")
	}
	defer x.TTY().Close()
	_, err = x.TTY().WriteString("word\n")
	s.must(err)
	text, _ := io.ReadAll(x.TTY()) // a terminal ends with an error
	for _, want := range []string{"terminal=xterm", "got word"} {
		if !strings.Contains(string(text), want) {
			s.Errorf("the terminal lacks %q: %q", want, text)
		}
	}
	exit, err := x.Wait(ctx)
	s.must(err)
	if exit.Code != 0 {
		s.Errorf("exit is %+v", exit)
	}
	s.must(x.Close(ctx))
}

func execMissing(ctx context.Context, s *scene) {
	b := s.box("/bin/sleep", "1000").start(ctx)
	_, err := s.h.Exec(ctx, pod.ExecRequest{Container: b.Container, Command: []string{"/no/such/program"}})
	s.fails(err, errdefs.ErrInvalidArgument, string(b.ID), `"/no/such/program"`)
	_, err = s.h.Exec(ctx, pod.ExecRequest{Container: b.Container, Command: []string{"no-such-program"}})
	s.fails(err, errdefs.ErrInvalidArgument, `"no-such-program"`, "PATH (/bin)")
}

func execEmpty(ctx context.Context, s *scene) {
	b := s.box("/bin/sleep", "1000").start(ctx)
	_, err := s.h.Exec(ctx, pod.ExecRequest{Container: b.Container})
	s.fails(err, errdefs.ErrInvalidArgument, "no command")
}

func execEnded(ctx context.Context, s *scene) {
	b := s.script("exit 0").start(ctx)
	b.exit(ctx)
	_, err := s.h.Exec(ctx, pod.ExecRequest{Container: b.Container, Command: []string{"/bin/true"}})
	s.fails(err, errdefs.ErrPrecondition, string(b.ID))
}

func execKilled(ctx context.Context, s *scene) {
	b := s.box("/bin/sleep", "1000").start(ctx)
	r, w, err := os.Pipe()
	s.must(err)
	defer r.Close()
	command := []string{"sh", "-c", "sleep 2000 & sleep 2000 & echo started; wait"}
	x, err := s.h.Exec(ctx, pod.ExecRequest{Container: b.Container, Command: command, Stdio: [3]*os.File{nil, w, nil}})
	s.must(w.Close())
	s.must(err)
	word := make([]byte, len("started\n"))
	_, err = io.ReadFull(r, word)
	s.must(err)
	s.must(x.Kill(ctx))
	exit, err := x.Wait(ctx)
	s.must(err)
	if exit.Code != 137 {
		s.Errorf("exit is %+v", exit)
	}
	// Only the end of all of them ends the pipe.
	s.must(r.SetReadDeadline(time.Now().Add(10 * time.Second)))
	if _, err := io.ReadAll(r); err != nil {
		s.Errorf("children of the exec live on: %v", err)
	}
	s.must(x.Kill(ctx))
	s.must(x.Close(ctx))
	if seen := s.h.Observe(ctx, string(b.ID), b.Process); !seen.Alive {
		s.Error("the container was killed with its exec")
	}
}

func execClosed(ctx context.Context, s *scene) {
	b := s.box("/bin/sleep", "1000").start(ctx)
	r, w, err := os.Pipe()
	s.must(err)
	defer r.Close()
	x, err := s.h.Exec(ctx, pod.ExecRequest{Container: b.Container, Command: []string{"/bin/sleep", "2000"}, Stdio: [3]*os.File{nil, w, nil}})
	s.must(w.Close())
	s.must(err)
	s.must(x.Close(ctx))
	s.must(r.SetReadDeadline(time.Now().Add(10 * time.Second)))
	if _, err := io.ReadAll(r); err != nil {
		s.Errorf("the process lives after Close: %v", err)
	}
	s.must(x.Close(ctx))
}
