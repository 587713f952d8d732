package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/images"
	"fairlead.run/test/node"
)

// pidLimit is a cgroup in which process ids can run out.
type pidLimit struct {
	t        *testing.T
	top, dir string // of the hierarchy, and its own
	threads  bool   // can be in it without their process
}

// newPidLimit makes one without a limit. It goes when what is in it has gone, so it
// has to be made before the node.
func newPidLimit(t *testing.T) *pidLimit {
	t.Helper()
	top, threads := pidsHierarchy()
	l := &pidLimit{t, top, filepath.Join(top, fmt.Sprintf("%s-%d", t.Name(), os.Getpid())), threads}
	if err := os.Mkdir(l.dir, 0o755); err != nil {
		t.Skipf("needs root, to make a cgroup: %v", err)
	}
	t.Cleanup(func() {
		node.Eventually(t, "the cgroup of the test is empty", func() bool { return os.Remove(l.dir) == nil })
	})
	if !threads {
		if err := os.WriteFile(filepath.Join(top, "cgroup.subtree_control"), []byte("+pids"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// pidsHierarchy is where process ids are limited, and whether a thread can be elsewhere in
// it than its process, as with cgroup v1.
func pidsHierarchy() (top string, threads bool) {
	const v1 = "/sys/fs/cgroup/pids"
	if _, err := os.Stat(v1 + "/cgroup.procs"); err == nil {
		return v1, true
	}
	return "/sys/fs/cgroup", false
}

func (l *pidLimit) write(file, text string) {
	l.t.Helper()
	if err := os.WriteFile(filepath.Join(l.dir, file), []byte(text), 0o644); err != nil {
		l.t.Fatal(err)
	}
}

func (l *pidLimit) take(pids ...int) {
	l.t.Helper()
	for _, pid := range pids {
		l.write("cgroup.procs", strconv.Itoa(pid))
	}
}

func (l *pidLimit) used() int {
	l.t.Helper()
	b, err := os.ReadFile(filepath.Join(l.dir, "pids.current"))
	if err != nil {
		l.t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		l.t.Fatal(err)
	}
	return n
}

// leave leaves so many process ids in it.
func (l *pidLimit) leave(n int) { l.write("pids.max", strconv.Itoa(l.used()+n)) }
func (l *pidLimit) close()      { l.leave(0) }
func (l *pidLimit) open()       { l.write("pids.max", "max") }

// inhabit starts a process in it that ends with the test, so that a program of
// the node that ends frees nothing.
func (l *pidLimit) inhabit(processes int) (end func()) {
	l.t.Helper()
	var all []*exec.Cmd
	end = sync.OnceFunc(func() {
		for _, c := range all {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	})
	l.t.Cleanup(end)
	for range processes {
		c := exec.Command("sleep", "1000")
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := c.Start(); err != nil {
			l.t.Fatal(err)
		}
		all = append(all, c)
		l.take(c.Process.Pid) // which no limit forbids
	}
	return end
}

// within calls f, whose processes begin in it. With cgroup v2 the test is in it meanwhile.
func (l *pidLimit) within(f func()) {
	l.t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	file, id, key := "cgroup.procs", os.Getpid(), "0::"
	if l.threads {
		file, id, key = "tasks", unix.Gettid(), ":pids:"
	}
	own, err := os.ReadFile("/proc/thread-self/cgroup")
	if err != nil {
		l.t.Fatal(err)
	}
	var home string
	for line := range strings.Lines(string(own)) {
		if _, path, ok := strings.Cut(strings.TrimSpace(line), key); ok {
			home = path
		}
	}
	l.write(file, strconv.Itoa(id))
	defer func() {
		if err := os.WriteFile(filepath.Join(l.top, home, file), []byte(strconv.Itoa(id)), 0o644); err != nil {
			l.t.Fatal(err)
		}
	}()
	f()
}

// wantNoPids wants what could not be done to say so, and what helps.
func wantNoPids(t *testing.T, what string, err error) {
	t.Helper()
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "no process ids are left: pids.max of cgroup /") || !strings.Contains(err.Error(), "raise it") {
		t.Errorf("%s: %v", what, err)
	}
}

// settlers are containers that nothing that happens to daemon and monitor may
// touch.
type settlers struct {
	all    []*node.Container
	pids   []int
	writes *node.Container
}

func settle(n *node.Node) *settlers {
	n.T.Helper()
	s := &settlers{}
	for range 4 {
		for _, h := range node.Handlers {
			_, c := inhabited(n, h)
			s.all = append(s.all, c)
		}
	}
	s.writes = n.RunPod("").Start(node.Script(node.Numbers))
	s.all = append(s.all, s.writes)
	for _, c := range s.all {
		s.pids = append(s.pids, pidOf(c))
	}
	return s
}

func (s *settlers) check(t *testing.T, when string) {
	t.Helper()
	for i, c := range s.all {
		if st := c.Status(); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING || pidOf(c) != s.pids[i] {
			t.Errorf("%s: a container that was process %d: %v", when, s.pids[i], st)
		}
	}
}

// askAll asks for much at the same time, none of which needs a process.
func askAll(n *node.Node, s *settlers) {
	n.T.Helper()
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			var err error
			switch i % 4 {
			case 0:
				_, err = n.Runtime.ListContainerStats(n.Ctx(), &runtimeapi.ListContainerStatsRequest{})
			case 1:
				_, err = n.Runtime.ListPodSandboxStats(n.Ctx(), &runtimeapi.ListPodSandboxStatsRequest{})
			case 2:
				_, err = n.Runtime.ContainerStatus(n.Ctx(), &runtimeapi.ContainerStatusRequest{ContainerId: s.all[i%len(s.all)].ID, Verbose: true})
			case 3:
				_, err = n.Images.ImageFsInfo(n.Ctx(), &runtimeapi.ImageFsInfoRequest{})
			}
			if err != nil {
				n.T.Errorf("a call that needs no process: %v", err)
			}
		})
	}
	all.Wait()
}

// tellMonitor shows what the monitor of a test that failed has said.
func tellMonitor(n *node.Node) {
	if log, err := os.ReadFile(filepath.Join(n.State, "monitor/monitor.log")); err == nil && n.T.Failed() {
		n.T.Logf("monitor:\n%s", log[max(0, len(log)-6000):])
	}
}

func tryExec(c *node.Container) error {
	n := c.Sandbox.Node
	_, err := n.Runtime.ExecSync(n.Ctx(), &runtimeapi.ExecSyncRequest{ContainerId: c.ID, Cmd: []string{"true"}, Timeout: 30})
	return err
}

func tryRun(n *node.Node, change ...func(*runtimeapi.PodSandboxConfig)) error {
	r, err := n.Runtime.RunPodSandbox(n.Ctx(), &runtimeapi.RunPodSandboxRequest{Config: n.PodConfig(change...)})
	if err == nil {
		n.Know(r.PodSandboxId)
	}
	return err
}

// hanging is how many threads of the daemon, and of the monitor, wait in the
// kernel at the same time.
const hanging = 10

// hangers are containers with a log, and others with a volume, on a file system
// that works until hang is called; then each costs the monitor or the daemon a
// thread, until free is.
func hangers(n *node.Node) (hang func() (free func())) {
	t := n.T
	t.Helper()
	dead := mountDead(t, filepath.Join(t.TempDir(), "dead"))
	var logs []*node.Container
	for i := range hanging {
		s := n.RunPod("", func(p *runtimeapi.PodSandboxConfig) { p.LogDirectory = fmt.Sprintf("%s/logs-%d", dead.dir, i) })
		logs = append(logs, s.Create(node.Script("sleep 1000")))
	}
	volumes := n.RunPod("")
	return func() func() {
		dead.hang(deaf)
		var all sync.WaitGroup
		for i, c := range logs {
			all.Go(func() {
				_ = c.TryStart() // it may start, once the path is free
			})
			all.Go(func() {
				cfg := node.Script("sleep 1000")
				cfg.Mounts = []*runtimeapi.Mount{{ContainerPath: "/volume", HostPath: fmt.Sprintf("%s/volume-%d", dead.dir, i)}}
				_, _ = volumes.TryCreate(cfg) // and be made
			})
		}
		p := askSelf(n)
		node.Eventually(t, "logs and volumes hang", func() bool {
			return stuckThreads(t, p.Daemon.PID) >= hanging && stuckThreads(t, p.Monitor.InnerPID) >= hanging
		})
		for _, pid := range []int{p.Daemon.PID, p.Monitor.InnerPID} {
			if stuck(fmt.Sprintf("/proc/%d/wchan", pid)) {
				t.Errorf("the first thread of process %d hangs, to which the kernel gives its signals", pid)
			}
		}
		return func() {
			dead.free()
			all.Wait()
		}
	}
}

// stuckThreads counts the threads of a process that wait for a FUSE server.
func stuckThreads(t *testing.T, pid int) (n int) {
	t.Helper()
	found, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/wchan", pid))
	if err != nil || len(found) == 0 {
		t.Fatalf("no threads of process %d: %v", pid, err)
	}
	for _, path := range found {
		if stuck(path) {
			n++
		}
	}
	return n
}

// stuck tells from the wchan of a thread whether it waits for a FUSE server.
func stuck(wchan string) bool {
	in, _ := os.ReadFile(wchan) // it may have ended
	return strings.HasPrefix(string(in), "fuse_") || string(in) == "request_wait_answer"
}

// Daemon and monitor have no process id left, for another process or thread:
// they and all containers go on, what needs a process says why it cannot be, and
// all works again when there are some.
func TestNoProcessIDs(t *testing.T) {
	limit := newPidLimit(t)
	n := node.Start(t, "", node.Plain)
	n.Pull(node.Busybox)
	t.Cleanup(func() { tellMonitor(n) })
	other, err := node.PushImage("test/pids:1", ocispec.ImageConfig{}, images.Layer{Files: map[string]images.File{"file": {Body: []byte("x")}}})
	if err != nil {
		t.Fatal(err)
	}
	s := settle(n)
	waits, empty := n.RunPod(""), n.RunPod("")
	ended := empty.Start(node.Script("while [ ! -e /stop ]; do usleep 10000; done; exit 3"))
	before := askSelf(n)
	t.Cleanup(limit.open)
	limit.take(before.Daemon.PID, before.Monitor.OuterPID, before.Monitor.InnerPID)
	hang := hangers(n)
	limit.close()
	free := hang()

	err = tryExec(s.all[0])
	wantNoPids(t, "a command in a container", err)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			if i%2 == 0 {
				wantNoPids(t, "the start of a container", waits.Create(node.Script("sleep 1000")).TryStart())
				return
			}
			err := tryExec(s.all[i%len(s.all)])
			wantNoPids(t, "a command in a container", err)
		})
	}
	all.Wait()
	askAll(n, s)
	n.Pull(other)
	// What ends is seen, and told with its code.
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/root/stop", pidOf(ended)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if st := ended.Wait(); st.ExitCode != 3 {
		t.Errorf("the container that ended: %v", st)
	}
	// A pod is made without a process, or says why not.
	if err := tryRun(n); err != nil {
		wantNoPids(t, "a pod", err)
	}
	if err := tryRun(n, node.SharedPID); err == nil {
		t.Error("a pod with a process of its own was made")
	} else {
		wantNoPids(t, "a pod with a process of its own", err)
	}
	s.check(t, "without process ids")
	if now := askSelf(n); now.Daemon.PID != before.Daemon.PID || now.Monitor.OuterPID != before.Monitor.OuterPID || now.Monitor.InnerPID != before.Monitor.InnerPID {
		t.Errorf("a process of the node's own was replaced: %+v, and before %+v", now, before)
	}

	limit.open()
	free()
	for _, c := range s.all {
		if c != s.writes {
			c.Exec("true")
		}
	}
	s.check(t, "with process ids again")
	again := waits.Start(node.Script("sleep 1000"))
	again.Exec("true")
	s.writes.StopNumbers()
	s.writes.Wait()
	node.CheckNumbers(t, s.writes.Log())
	wantInOrder(t, n)
}

// What dies while there are no process ids begins again when there are, by who
// looks after it, and finds everything.
func TestDeathsWithoutProcessIDs(t *testing.T) {
	limit := newPidLimit(t)
	n := node.Start(t, "", node.Plain)
	n.Pull(node.Busybox)
	t.Cleanup(func() { tellMonitor(n) })
	s := settle(n)
	t.Cleanup(limit.open)
	before := askSelf(n)
	limit.take(before.Daemon.PID, before.Monitor.OuterPID, before.Monitor.InnerPID)
	limit.close()
	end := limit.inhabit(limit.used()) // as many as could end

	t.Run("the inner monitor", func(t *testing.T) {
		n.KillMonitor("inner")
		node.Eventually(t, "the outer one says why there is none", func() bool {
			log, err := os.ReadFile(filepath.Join(n.State, "monitor/monitor.log"))
			return err == nil && strings.Contains(string(log), "inner process not started") && strings.Contains(string(log), "no process ids are left: pids.max of cgroup /")
		})
		s.check(t, "without it")
		limit.open()
		node.Eventually(t, "a command is executed", func() bool {
			return tryExec(s.all[0]) == nil
		})
		if now := askSelf(n); now.Daemon.PID != before.Daemon.PID || now.Monitor.OuterPID != before.Monitor.OuterPID {
			t.Errorf("more was replaced: %+v, and before %+v", now, before)
		}
		limit.take(askSelf(n).Monitor.InnerPID)
		limit.close()
	})
	t.Run("the daemon", func(t *testing.T) {
		n.Kill(syscall.SIGKILL)
		limit.leave(20) // with which a program begins
		limit.within(func() {
			if err := n.TryStart(); err == nil || !strings.Contains(err.Error(), "pids.max of cgroup /") {
				t.Errorf("a daemon without process ids: %v", err)
			}
			limit.open()
			n.Start()
		})
		allObserved(n)
		s.check(t, "with another daemon")
	})
	limit.open()
	end()
	for _, c := range s.all {
		if c != s.writes {
			c.Exec("true")
		}
	}
	s.writes.StopNumbers()
	s.writes.Wait()
	node.CheckNumbers(t, s.writes.Log())
	n.RunPod("").Start(node.Script("sleep 1000")).Exec("true")
	wantInOrder(t, n)
}
