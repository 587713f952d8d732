package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	rpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/monitor/client"
	"fairlead.run/test/node"
)

// aimed is a node whose monitor dies at one place, once, when it is told to.
type aimed struct {
	*node.Node
	t       *testing.T
	dir     string // has a file for each place at which the monitor does not die
	monitor *client.Client
}

// startAimed starts a node whose monitor can die at all places that there are.
func startAimed(t *testing.T) (*aimed, []string) {
	t.Helper()
	a := &aimed{t: t, dir: t.TempDir()}
	places := node.MonitorPlaces(t)
	var spec []string
	for _, place := range places {
		spec = append(spec, place+"=kill!"+a.file(place))
		a.spare(place)
	}
	a.Node = node.Start(t, "", node.Plain, node.WithEnv(failpoint.MonitorEnv+"="+strings.Join(spec, ",")))
	m, err := client.Ensure(a.Ctx(), client.Options{StateDir: a.State, Binary: filepath.Join(node.Bin, "fairlead-monitor")})
	if err != nil {
		t.Fatal(err)
	}
	a.monitor = m
	return a, places
}

func (a *aimed) file(place string) string { return filepath.Join(a.dir, place) }

// spare lets the monitor live at the place.
func (a *aimed) spare(place string) {
	if err := os.WriteFile(a.file(place), nil, 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a *aimed) aim(place string) {
	if err := os.Remove(a.file(place)); err != nil {
		a.t.Fatal(err)
	}
}

func (a *aimed) died(place string) bool {
	_, err := os.Stat(a.file(place))
	return err == nil
}

func (a *aimed) info() monitorv1.Info {
	a.t.Helper()
	i, err := a.monitor.Info(a.Ctx())
	if err != nil {
		a.t.Fatalf("ask the monitor: %v", err)
	}
	return i
}

// The monitor dies at every place that there is, while a caller of the daemon
// does what callers do. Requests succeed, if need be when they are repeated;
// containers that it has nothing to do with go on; every exit code and line
// arrives; nothing is left, and after each an audit finds nothing.
func TestMonitorKilledAtEveryPlace(t *testing.T) {
	t.Parallel()
	a, places := startAimed(t)
	a.Pull(node.Busybox)
	handlers := map[string]*node.Sandbox{}
	var bystanders []*node.Container
	for _, h := range node.Handlers {
		handlers[h] = a.RunPod(h)
		bystanders = append(bystanders, handlers[h].Start(node.Script(slowNumbers)))
	}
	bystanders[0].Exec("true")
	var daemon survivors
	daemon.wantNoMore(t, a.Node, theDaemon) // with all its connections to the monitor
	var last []string                       // those of the monitor's end
	for i, place := range places {
		if strings.HasPrefix(place, "monitor.shutdown.") || place == "monitor.outer.leaving" {
			last = append(last, place)
			continue
		}
		for _, first := range firstRequests(place) {
			handler := node.Handlers[i%len(node.Handlers)]
			t.Run(strings.TrimPrefix(place, "monitor.")+"/"+first+"/"+handler, func(t *testing.T) {
				s := &monitorStory{aimed: a, t: t, pod: handlers[handler], first: first}
				s.tell(place)
				if !a.died(place) {
					t.Error("the monitor never came by")
					a.spare(place)
				}
				wantInOrder(t, a.Node)
				daemon.wantNoMore(t, a.Node, theDaemon)
			})
		}
	}
	for _, c := range bystanders {
		c.StopNumbers()
		if st := c.Wait(); !node.SaidLost(t, st) && (st.ExitCode != 0 || st.Reason != "Completed") {
			t.Errorf("bystander: code %d, %s", st.ExitCode, st.Reason)
		}
		t.Logf("%d lines of a bystander", node.CheckNumbers(t, c.Log()))
	}
	a.RemoveAll()
	for _, place := range last {
		a.aim(place)
		a.Kill(syscall.SIGTERM) // ends the monitor, as there are no pods
		if !a.died(place) {
			t.Errorf("the monitor never came by %s", place)
		}
		a.Start()
		a.info()
	}
}

// The requests with which a story goes on when the monitor has been aimed at.
const (
	byExec  = "exec"
	byStart = "start"
)

// inBoth are the places that the start of a container and that of an exec have
// in common.
var inBoth = []string{
	"monitor.start.after-fork", "monitor.start.command-recorded", "monitor.start.command-ended",
	"monitor.start.after-adopt", "monitor.start.unanswered",
}

// firstRequests are those that the story of a place is told with. At the places
// of a start the monitor dies in one without a terminal, too.
func firstRequests(place string) []string {
	switch {
	case place == "monitor.start.terminal-taken", place == "monitor.start.undone",
		!strings.HasPrefix(place, "monitor.start."):
		return []string{byExec}
	}
	return []string{byExec, byStart}
}

// slowNumbers is node.Numbers for a container that runs for long.
const slowNumbers = `i=0; while [ ! -e /stop ]; do i=$((i+1)); echo $i; [ $((i%10)) = 0 ] && usleep 20000; done; echo end`

// monitorStory is what a caller does while the monitor dies once.
type monitorStory struct {
	*aimed
	t     *testing.T
	pod   *node.Sandbox
	first string // the request after the monitor has been aimed at
}

// again repeats a request that failed, as a kubelet does.
func (s *monitorStory) again(what string, do func() error) {
	s.t.Helper()
	var failed []error
	for range 4 {
		err := do()
		if err == nil {
			return
		}
		failed = append(failed, err)
	}
	s.t.Fatalf("%s: %v", what, errors.Join(failed...))
}

func (s *monitorStory) tell(place string) {
	early := s.pod.Start(node.Script("while [ ! -e /go ]; do usleep 10000; done; echo went; exit 9"))
	before := s.info()
	s.aim(place)
	switch {
	case place == "monitor.outer.end-recorded":
		s.stopped(place, early, before.InnerPID)
	case place == "monitor.give.taken":
		s.terminalKept(place, before)
	case place == "monitor.give-up.marked":
		s.givenUp()
	case place == "monitor.signal.sent":
		s.overdue(early)
	case strings.HasPrefix(place, "monitor.upgrade."), place == "monitor.inner.leaving":
		s.signal(before.OuterPID, syscall.SIGHUP)
	case strings.HasPrefix(place, "monitor.outer."), strings.HasPrefix(place, "monitor.inner."):
		pid := before.InnerPID
		if place == "monitor.outer.begun" || place == "monitor.inner.becoming-outer" {
			pid = before.OuterPID
		}
		s.signal(pid, syscall.SIGKILL)
	}
	// Both processes are dead for a moment at some of the places; who has ended
	// in it is said to be lost.
	if s.first == byStart {
		s.plain(early)
	} else {
		s.again("exec", func() error {
			_, err := s.Runtime.ExecSync(s.Ctx(), &runtimeapi.ExecSyncRequest{ContainerId: early.ID, Cmd: []string{"touch", "/go"}})
			if err != nil && (early.Status().State == runtimeapi.ContainerState_CONTAINER_EXITED || status.Code(err) == rpccodes.FailedPrecondition) {
				return nil // the command was done, and it is its end that was lost; the daemon may not know yet that the container has ended
			}
			return err
		})
	}
	if (s.first == byStart || slices.Contains(inBoth, place)) && !s.died(place) {
		s.t.Errorf("the monitor did not come by in the first %s", s.first)
	}
	if st := early.Wait(); !node.SaidLost(s.t, st) && (st.ExitCode != 9 || st.Reason != "Error") || early.Log() != "went\n" {
		s.t.Errorf("container that ended meanwhile: code %d, reason %s, log %q", st.ExitCode, st.Reason, early.Log())
	}
	s.remove(early)
	s.terminal()
	s.refused()
	s.input()
}

// givenUp is about a start that hangs, and that its caller gives up as often as it
// takes.
func (s *monitorStory) givenUp() {
	dir := s.t.TempDir()
	failed := make(chan error, 1)
	go func() {
		_, err := s.monitor.Start(context.Background(), monitorv1.StartRequest{
			ID: "hangs", Command: []string{"/bin/sleep", "4321"}, PIDFile: filepath.Join(dir, "pid"), IODir: filepath.Join(dir, "io"), Timeout: time.Hour,
		})
		failed <- err
	}()
	node.Eventually(s.t, "the start is given up", func() bool {
		_ = s.monitor.GiveUp(s.Ctx(), "hangs") // it may not have begun
		select {
		case err := <-failed:
			// The process that was asked may have died of it, and the next one begins nothing.
			if err == nil || !strings.Contains(err.Error(), "given up") && !strings.Contains(err.Error(), "the monitor was restarted") {
				s.t.Errorf("the start that was given up: %v", err)
			}
			return true
		default:
			return false
		}
	})
}

// overdue is about a command that takes too long, and is killed for that.
func (s *monitorStory) overdue(c *node.Container) {
	err := beyondItsTime(c)
	if err != nil {
		s.t.Errorf("a command that takes too long: %v", err)
	}
	if ps := c.Exec("ps"); strings.Contains(ps, "sleep 4321") {
		s.t.Errorf("the command still runs:\n%s", ps)
	}
}

// beyondItsTime executes a command that takes longer than it may. It wants to be
// told that, and nothing else.
func beyondItsTime(c *node.Container) error {
	n := c.Sandbox.Node
	_, err := n.Runtime.ExecSync(n.Ctx(), &runtimeapi.ExecSyncRequest{ContainerId: c.ID, Cmd: []string{"sleep", "4321"}, Timeout: 1})
	if status.Code(err) == rpccodes.DeadlineExceeded && !strings.Contains(err.Error(), "failpoint") {
		return nil
	}
	return fmt.Errorf("not killed in time: %w", err)
}

// plain starts a container without a terminal, which ends by itself, while the
// early one ends without a request.
func (s *monitorStory) plain(early *node.Container) {
	c := s.create(node.Script("echo here; echo there >&2; exit 3"))
	s.open(early)
	s.again("start", c.TryStart)
	if st := c.Wait(); st.ExitCode != 3 || st.Reason != "Error" {
		s.t.Errorf("container that was started: code %d, reason %s", st.ExitCode, st.Reason)
	}
	node.Eventually(s.t, "output of the container that was started", func() bool {
		log := c.Log() // the order of two streams is not kept
		return len(log) == len("here\nthere\n") && strings.Contains(log, "here\n") && strings.Contains(log, "there\n")
	})
	s.remove(c)
}

// stopped is about a container that ends while the inner process is stopped: the
// outer one sees when, and dies of it.
func (s *monitorStory) stopped(place string, c *node.Container, inner int) {
	s.signal(inner, syscall.SIGSTOP)
	s.open(c)
	node.Eventually(s.t, "the death of the outer process", func() bool { return s.died(place) })
	resumed := time.Now()
	s.signal(inner, syscall.SIGCONT)
	if st := c.Wait(); st.FinishedAt > resumed.UnixNano() {
		s.t.Errorf("container that ended before %s has the time %s", resumed, time.Unix(0, st.FinishedAt))
	}
}

// terminalKept is about a terminal that outlives the monitor as a whole, because
// the daemon has it, too. The next monitor dies as it gets it back.
func (s *monitorStory) terminalKept(place string, now monitorv1.Info) {
	cfg := node.Script("while [ ! -e /go ]; do usleep 10000; done; echo here; exit 3")
	cfg.Tty = true
	c := s.pod.Start(cfg)
	// One after the other they would start each other again.
	s.signal(now.OuterPID, syscall.SIGSTOP)
	s.signal(now.InnerPID, syscall.SIGSTOP)
	s.signal(now.OuterPID, syscall.SIGKILL)
	s.signal(now.InnerPID, syscall.SIGKILL)
	node.Eventually(s.t, "the death of the next monitor", func() bool { return s.died(place) })
	s.open(c)
	if st := c.Wait(); !node.SaidLost(s.t, st) && st.ExitCode != 3 {
		s.t.Errorf("container with a terminal that was kept: code %d, reason %s", st.ExitCode, st.Reason)
	}
	node.Eventually(s.t, "output of the terminal", func() bool { return c.Log() == "here\r\n" })
	s.remove(c)
}

// open ends the waiting of a container without an exec in it.
func (s *monitorStory) open(c *node.Container) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.State, "containers", c.ID, "rootfs", "go"), nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *monitorStory) signal(pid int, sig syscall.Signal) {
	s.t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		s.t.Fatal(err)
	}
}

// terminal is about a container that ends by itself, and has a terminal.
func (s *monitorStory) terminal() {
	cfg := node.Script("echo here; exit 3")
	cfg.Tty = true
	c := s.create(cfg)
	s.again("start a container with a terminal", c.TryStart)
	if st := c.Wait(); st.ExitCode != 3 {
		s.t.Errorf("container with a terminal: code %d, reason %s", st.ExitCode, st.Reason)
	}
	node.Eventually(s.t, "output of the terminal", func() bool { return c.Log() == "here\r\n" })
	s.remove(c)
}

func (s *monitorStory) create(cfg *runtimeapi.ContainerConfig) *node.Container {
	s.t.Helper()
	c := &node.Container{Sandbox: s.pod, Config: cfg}
	s.again("create", func() (err error) {
		c.ID, err = s.pod.TryCreate(cfg)
		return err
	})
	return c
}

func (s *monitorStory) remove(c *node.Container) {
	s.t.Helper()
	s.again("remove", func() error {
		_, err := s.Runtime.RemoveContainer(s.Ctx(), &runtimeapi.RemoveContainerRequest{ContainerId: c.ID})
		return err
	})
}

// refused is about a container that cannot start.
func (s *monitorStory) refused() {
	cfg := node.Script("")
	cfg.Command = []string{"/no/such/program"}
	c := s.create(cfg)
	if err := c.TryStart(); err == nil {
		s.t.Error("a container without its program started")
	}
	if st := c.Status(); st.State != runtimeapi.ContainerState_CONTAINER_EXITED {
		s.t.Errorf("a container that did not start is %s", st.State)
	}
	s.remove(c)
}

// input is about one that reads, while others run in it and its log is rotated.
func (s *monitorStory) input() {
	cfg := node.Script("cat; exit 7")
	cfg.Stdin, cfg.StdinOnce = true, true
	c := s.create(cfg)
	s.again("start", c.TryStart)
	s.again("exec", func() error {
		r, err := s.Runtime.ExecSync(s.Ctx(), &runtimeapi.ExecSyncRequest{ContainerId: c.ID, Cmd: []string{"sh", "-c", "echo from exec; exit 5"}, Timeout: 30})
		if err == nil && (r.ExitCode != 5 || string(r.Stdout) != "from exec\n") {
			s.t.Errorf("exec: code %d, output %q", r.ExitCode, r.Stdout)
		}
		return err
	})
	s.again("exec with a terminal", func() error { return s.execTerminal(c) })
	old := c.LogPath() + ".1"
	if err := os.Rename(c.LogPath(), old); err != nil {
		s.t.Fatal(err)
	}
	s.again("reopen", func() error {
		_, err := s.Runtime.ReopenContainerLog(s.Ctx(), &runtimeapi.ReopenContainerLogRequest{ContainerId: c.ID})
		return err
	})
	// Whoever attaches again after the monitor died may have written already.
	s.again("attach", func() error { return s.attach(c) })
	if st := c.Wait(); st.ExitCode != 7 {
		s.t.Errorf("container with input: code %d, reason %s", st.ExitCode, st.Reason)
	}
	if log := c.Log(); strings.ReplaceAll(log, "typed\n", "") != "" || log == "" {
		s.t.Errorf("log %q", log)
	}
	s.remove(c)
	if err := os.Remove(old); err != nil {
		s.t.Error(err)
	}
}

func (s *monitorStory) execTerminal(c *node.Container) error {
	url := c.ExecURL(&runtimeapi.ExecRequest{ContainerId: c.ID, Cmd: []string{"echo", "on a terminal"}, Tty: true, Stdin: true, Stdout: true})
	e, err := node.SPDYExecutor(url)
	if err != nil {
		return err
	}
	in, w := io.Pipe()
	defer w.Close()
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(s.Ctx(), node.Patience)
	defer cancel()
	err = e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: &out, Tty: true})
	if err == nil && out.String() != "on a terminal\r\n" {
		return fmt.Errorf("it said %q", out.String())
	}
	return err
}

// attach writes a line, after which the container's input ends. One that has
// ended was reached by an earlier attempt.
func (s *monitorStory) attach(c *node.Container) error {
	if c.Status().State == runtimeapi.ContainerState_CONTAINER_EXITED {
		return nil
	}
	r, err := s.Runtime.Attach(s.Ctx(), &runtimeapi.AttachRequest{ContainerId: c.ID, Stdin: true, Stdout: true})
	if err != nil {
		return err
	}
	e, err := node.SPDYExecutor(r.Url)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.Ctx(), node.Patience)
	defer cancel()
	return e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader("typed\n"), Stdout: io.Discard})
}
