package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

const (
	sessionsInARow = 1000 // over all rounds that count
	sessionsAtOnce = 100
	bursts         = 3
)

// Commands are executed in containers in every way that there is, one after the
// other and many at once. Neither daemon nor monitor nor the containers hold more
// afterwards.
func TestSessionsLeakNothing(t *testing.T) {
	n := node.Start(t, "", node.Plain)
	n.Pull(node.Busybox)
	s := &sessions{n: n, gates: t.TempDir()}
	for _, handler := range node.Handlers {
		cfg := node.Script("while :; do sleep 10000; done")
		cfg.Mounts = []*runtimeapi.Mount{{HostPath: s.gates, ContainerPath: "/gates", Readonly: true}}
		s.in = append(s.in, n.RunPod(handler).Start(cfg))
	}
	s.inARow(t)
	s.atOnce(t)
	for _, c := range s.in {
		if st := c.Status(); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("a container in which commands were executed: %+v", st)
		}
		c.Sandbox.Remove()
	}
	wantInOrder(t, n)
}

// sessions are executed in one container for each handler.
type sessions struct {
	n     *node.Node
	in    []*node.Container
	next  int
	gates string // the folder /gates of the containers
}

func (s *sessions) inARow(t *testing.T) {
	run := func(rounds int) (out []sample) {
		for range rounds {
			for range sessionsInARow / churnRounds {
				// Most of them under crun, which is quicker.
				c := s.in[min(1, s.next%10)]
				if err := s.one(t.Context(), c, s.next, nil); err != nil {
					t.Fatalf("session %d: %v", s.next, err)
				}
				s.next++
			}
			out = append(out, s.held(t))
		}
		return out
	}
	// A thread more is no leak, and has no slope.
	grow := func(samples []sample) []string {
		return slices.DeleteFunc(growth(samples), func(g string) bool { return strings.HasPrefix(g, "threads ") })
	}
	run(1) // in which caches and pools fill
	samples := run(churnRounds)
	grown := grow(samples)
	if len(grown) > 0 {
		t.Logf("once more, because these grew: %s", strings.Join(grown, "; "))
		samples = run(churnRounds)
		grown = grownAgain(grown, grow(samples))
	}
	first, last := samples[0], samples[len(samples)-1]
	for _, name := range slices.Sorted(maps.Keys(first)) {
		t.Logf("%-40s %12.0f then %12.0f", name, first[name], last[name])
	}
	for _, g := range grown {
		t.Error(g)
	}
	if now, was := last["threads of the daemon"], first["threads of the daemon"]; now > was+slack("threads") {
		t.Errorf("after %d sessions the daemon has %.0f threads, and had %.0f", s.next, now, was)
	}
}

// atOnce has all sessions of a burst open at the same time.
func (s *sessions) atOnce(t *testing.T) {
	var first sample
	for burst := range bursts {
		all := newGate(sessionsAtOnce, filepath.Join(s.gates, fmt.Sprint(burst)))
		var g errgroup.Group
		for i := range sessionsAtOnce {
			g.Go(func() error {
				if err := s.one(t.Context(), s.in[i%len(s.in)], i, all); err != nil {
					all.open()
					return fmt.Errorf("session %d of burst %d: %w", i, burst, err)
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = s.held(t)
			continue
		}
		more := settled(func() []string { return above(first, s.held(t)) })
		for _, what := range more {
			t.Errorf("after burst %d: %s", burst+1, what)
		}
	}
}

// above names what is more than it was.
func above(first, now sample) (more []string) {
	for name, n := range now {
		if n > first[name]+slack(name) {
			more = append(more, fmt.Sprintf("%s: %.0f, and there were %.0f", name, n, first[name]))
		}
	}
	return more
}

// slack is by how much a number may be larger although nothing leaks: numbers in
// files get more digits, and the Go runtime keeps each thread that it ever needed,
// which is one for each session of a burst if all of them wait for a disk in the
// same moment. Sessions that leak a thread exceed it in the burst after the next.
func slack(name string) float64 {
	switch kind, _, _ := strings.Cut(name, " "); kind {
	case "threads":
		return sessionsAtOnce
	case "bytes":
		return 4 << 10
	}
	return 0
}

// gate lets nobody through before all are there. In the containers it is a file.
type gate struct {
	missing sync.WaitGroup
	file    string
	opened  chan struct{}
	open    func()
}

func newGate(n int, file string) *gate {
	g := &gate{file: file, opened: make(chan struct{})}
	g.open = sync.OnceFunc(func() {
		_ = os.WriteFile(file, nil, 0o644) // without it, commands do not end
		close(g.opened)
	})
	g.missing.Add(n)
	go func() {
		g.missing.Wait()
		g.open()
	}()
	return g
}

// pass waits for the others. Without a gate there are none.
func (g *gate) pass() {
	if g != nil {
		g.missing.Done()
		<-g.opened
	}
}

// one executes a command in one of the ways, of which each i has the next.
func (s *sessions) one(ctx context.Context, c *node.Container, i int, all *gate) error {
	ctx, cancel := context.WithTimeout(ctx, 5*node.Patience)
	defer cancel()
	ways := []func(context.Context, *node.Container, *gate) error{
		s.sync,
		s.stream(node.SPDYExecutor, false), s.stream(node.WebSocketExecutor(), false),
		s.stream(node.SPDYExecutor, true), s.stream(node.WebSocketExecutor(), true),
		s.leave(node.SPDYExecutor), s.leave(node.WebSocketExecutor()),
	}
	return ways[i%len(ways)](ctx, c, all)
}

// sync is ExecSync. With a gate it goes on until the others are there.
func (s *sessions) sync(ctx context.Context, c *node.Container, all *gate) error {
	command := "cat; echo out; echo err >&2; exit 5"
	if all != nil {
		all.missing.Done()
		command = fmt.Sprintf("until [ -e /gates/%s ]; do usleep 50000; done; %s", filepath.Base(all.file), command)
	}
	r, err := s.n.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: c.ID, Cmd: []string{"sh", "-c", command}})
	if err == nil && (r.ExitCode != 5 || string(r.Stdout) != "out\n" || string(r.Stderr) != "err\n") {
		err = fmt.Errorf("it ended with %d and said %q and %q", r.ExitCode, r.Stdout, r.Stderr)
	}
	return err
}

type dialer func(string) (remotecommand.Executor, error)

// stream sends a line, which the command needs for its end.
func (s *sessions) stream(dial dialer, tty bool) func(context.Context, *node.Container, *gate) error {
	return func(ctx context.Context, c *node.Container, all *gate) error {
		e, err := s.dial(ctx, dial, c, "echo up; read x; echo got $x; exit 6", tty)
		if err != nil {
			return err
		}
		in, typed := io.Pipe()
		defer in.Close()
		out := &heard{want: "up", f: func() {
			all.pass()
			_, _ = io.WriteString(typed, "word\n")
			if !tty { // which has no end
				_ = typed.Close()
			}
		}}
		o := remotecommand.StreamOptions{Stdin: in, Stdout: out, Tty: tty}
		if !tty {
			o.Stderr = io.Discard
		}
		err = e.StreamWithContext(ctx, o)
		var code utilexec.CodeExitError
		if !errors.As(err, &code) || code.Code != 6 || !strings.Contains(out.String(), "got word") {
			return fmt.Errorf("it said %q and ended with %v", out.String(), err)
		}
		return nil
	}
}

// leave goes away from a command that would never end, with what it has started.
func (s *sessions) leave(dial dialer) func(context.Context, *node.Container, *gate) error {
	return func(ctx context.Context, c *node.Container, all *gate) error {
		e, err := s.dial(ctx, dial, c, "(setsid sleep 10000 &); sleep 10000 & echo up; cat", false)
		if err != nil {
			return err
		}
		ctx, leave := context.WithCancel(ctx)
		defer leave()
		in, typed := io.Pipe()
		defer typed.Close()
		up := &heard{want: "up", f: func() {
			all.pass()
			leave()
		}}
		err = e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: up, Stderr: io.Discard})
		if ctx.Err() == nil {
			return fmt.Errorf("it ended before its client left: %v", err)
		}
		return nil
	}
}

func (s *sessions) dial(ctx context.Context, dial dialer, c *node.Container, script string, tty bool) (remotecommand.Executor, error) {
	r, err := s.n.Runtime.Exec(ctx, &runtimeapi.ExecRequest{
		ContainerId: c.ID, Cmd: []string{"sh", "-c", script}, Stdin: true, Stdout: true, Stderr: !tty, Tty: tty,
	})
	if err != nil {
		return nil, err
	}
	return dial(r.Url)
}

// heard calls f once it was told what it waits for.
type heard struct {
	node.Buffer
	want string
	f    func()
	once sync.Once
}

func (w *heard) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if strings.Contains(w.String(), w.want) {
		w.once.Do(func() { go w.f() })
	}
	return n, err
}

// held is what there is when no session is open: in daemon and monitor, in the
// containers, and in their folders.
func (s *sessions) held(t *testing.T) sample {
	t.Helper()
	for _, c := range s.in {
		more := settled(func() []string {
			if in := inCgroupsOf(t, c.ID); len(in) > 2 { // its shell and a sleep
				return in
			}
			return nil
		})
		if len(more) > 0 {
			t.Fatalf("in a container without sessions run:\n%s", strings.Join(more, "\n"))
		}
	}
	more := settled(func() []string {
		if of := children(t, s.n); len(of) != len(s.in)+1 { // the containers, and the inner monitor
			return of
		}
		return nil
	})
	if len(more) > 0 {
		t.Fatalf("without sessions daemon and monitor have as children:\n%s", strings.Join(more, "\n"))
	}
	out := least(s.n)
	for folder, path := range map[string]string{
		"the monitor's records": filepath.Join(s.n.State, "monitor"), "containers": filepath.Join(s.n.State, "containers"),
		"what the runtimes keep": filepath.Join(s.n.State, "runtimes"), "the state": s.n.State, "what containers write": filepath.Join(s.n.Root, "containers"),
	} {
		out["entries in the folder of "+folder] = float64(entries(t, path))
	}
	out["bytes of records"] = usage(t, filepath.Join(s.n.State, "monitor"))
	return out
}

// inCgroupsOf are those in the cgroups of a container.
func inCgroupsOf(t *testing.T, id string) (out []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range all {
		cgroups, _ := os.ReadFile(dir + "/cgroup")
		if strings.Contains(string(cgroups), id) {
			args, _ := os.ReadFile(dir + "/cmdline")
			out = append(out, filepath.Base(dir)+" "+strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	return out
}

// children are those of daemon and monitor, the ones that nobody has waited for, too.
func children(t *testing.T, n *node.Node) (out []string) {
	t.Helper()
	of := map[string]bool{}
	for _, pid := range askSelf(n).pids() {
		of[strconv.Itoa(pid)] = true
	}
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		stat, _ := os.ReadFile(file)
		// "pid (name) state parent": a name may have anything in it.
		rest := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(rest) > 1 && of[rest[1]] {
			out = append(out, string(stat))
		}
	}
	return out
}

// entries counts files, folders and FIFOs.
func entries(t *testing.T, dir string) (n int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err == nil {
			n++
		}
		if e != nil && e.Name() == "rootfs" {
			return filepath.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// least is the least that daemon and monitor hold for a moment: what ends by
// itself is about to end.
func least(n *node.Node) sample {
	out := sample{}
	for same := 0; same < 5; same++ {
		for name, now := range measure(n) {
			if had, ok := out[name]; !ok || now < had {
				out[name], same = now, 0
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return out
}
