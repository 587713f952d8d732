package monitor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/monitor/client"
)

// node is one monitor with a state directory of its own.
type node struct {
	*client.Client
	t   *testing.T
	ctx context.Context
	dir string
	bin string
	opt client.Options
}

var cgroups atomic.Int32

// newNode starts a monitor, which the end of the test ends with all that it
// watches.
func newNode(t *testing.T, env ...string) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: the monitor serves root only")
	}
	dir, err := os.MkdirTemp("", "fm")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	n := &node{t: t, ctx: ctx, dir: dir, bin: self}
	n.opt = client.Options{
		StateDir: filepath.Join(dir, "s"), Binary: self, Env: env,
		Cgroup: fmt.Sprintf("fairlead-test-%d-%d", os.Getpid(), cgroups.Add(1)),
	}
	n.Client, err = client.Ensure(ctx, n.opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer cancel()
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(dir, "s/monitor/monitor.log"))
			t.Logf("log of the monitor:\n%s", log[max(0, len(log)-4000):])
		}
		if log, _ := os.ReadFile(filepath.Join(dir, "s/monitor/monitor.log")); strings.Contains(string(log), "DATA RACE") || strings.Contains(string(log), "panic:") {
			t.Errorf("log of the monitor:\n%s", log)
		}
		err := n.Shutdown(ctx, true)
		for range 5 { // a monitor that a failpoint kills again and again
			if err == nil {
				break
			}
			err = n.Shutdown(ctx, true)
		}
		if err != nil {
			t.Errorf("shut down: %v", err)
		}
		n.sweep()
		if left, _ := os.ReadDir(filepath.Join(dir, "s")); len(left) != 0 {
			t.Errorf("left in the state directory: %v", left)
		}
		for _, h := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/memory"} {
			if _, err := os.Stat(filepath.Join(h, n.opt.Cgroup)); err == nil {
				t.Errorf("cgroup left in %s", h)
			}
		}
		_ = os.RemoveAll(dir)
	})
	return n
}

// sweep kills what a failed test has left in the monitor's cgroup, which real
// runtimes leave and the test's own does not.
func (n *node) sweep() {
	n.t.Helper()
	dirs, _ := filepath.Glob("/sys/fs/cgroup/*/" + n.opt.Cgroup)
	dirs = append(dirs, "/sys/fs/cgroup/"+n.opt.Cgroup)
	for _, dir := range dirs {
		procs, _ := os.ReadFile(dir + "/cgroup.procs")
		for pid := range strings.FieldsSeq(string(procs)) {
			n.t.Errorf("process %s is left", pid)
			if p, err := strconv.Atoi(pid); err == nil {
				_ = unix.Kill(p, unix.SIGKILL)
			}
		}
		for range 100 {
			if err := os.Remove(dir); err == nil || errors.Is(err, os.ErrNotExist) {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// container is the request for a container that runs argv.
func (n *node) container(id string, argv ...string) monitorv1.StartRequest {
	return monitorv1.StartRequest{
		ID:      id,
		Command: append([]string{n.bin, "runtime", n.dir + "/" + id + ".pid", ""}, argv...),
		PIDFile: n.dir + "/" + id + ".pid",
		IODir:   n.dir + "/" + id + ".io",
		LogPath: n.dir + "/" + id + ".log",
		Env:     []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "GORACE=atexit_sleep_ms=0"},
		Timeout: 20 * time.Second,
	}
}

func (n *node) shell(id, script string) monitorv1.StartRequest {
	return n.container(id, "/bin/sh", "-c", script)
}

func (n *node) start(req monitorv1.StartRequest) monitorv1.Started {
	n.t.Helper()
	s, err := n.Start(n.ctx, req)
	if err != nil {
		n.t.Fatalf("start %s: %v", req.ID, err)
	}
	if s.PID < 2 {
		n.t.Fatalf("start %s: %+v", req.ID, s)
	}
	return s
}

func (n *node) wait(id string) monitorv1.Exit {
	n.t.Helper()
	e, err := n.Wait(n.ctx, id)
	if err != nil {
		n.t.Fatalf("wait %s: %v", id, err)
	}
	return e
}

func (n *node) info() monitorv1.Info {
	n.t.Helper()
	i, err := n.Info(n.ctx)
	if err != nil {
		n.t.Fatalf("info: %v", err)
	}
	return i
}

// kill ends a process of the monitor's, as no program can prevent.
func (n *node) kill(pid int) {
	n.t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		n.t.Fatalf("kill %d: %v", pid, err)
	}
}

// entry is one line of a log.
type entry struct {
	at                time.Time
	stream, tag, text string
}

// log reads a container's log, checking every line's form.
func (n *node) log(id string) []entry {
	n.t.Helper()
	return n.logFile(n.dir + "/" + id + ".log")
}

func (n *node) logFile(path string) []entry {
	n.t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		n.t.Fatal(err)
	}
	if len(data) == 0 {
		return nil
	}
	if data[len(data)-1] != '\n' {
		n.t.Fatalf("log %s does not end in a newline", path)
	}
	var all []entry
	for i, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		parts := strings.SplitN(line, " ", 4)
		if len(parts) != 4 || parts[1] != "stdout" && parts[1] != "stderr" || parts[2] != "P" && parts[2] != "F" {
			n.t.Fatalf("log %s line %d is cut: %.200q", path, i+1, line)
		}
		at, err := time.Parse(time.RFC3339Nano, parts[0])
		if err != nil {
			n.t.Fatalf("log %s line %d: %v", path, i+1, err)
		}
		all = append(all, entry{at, parts[1], parts[2], parts[3]})
	}
	return all
}

// text is a log with lines joined as kubelet joins them.
func (n *node) text(id, stream string) string {
	n.t.Helper()
	var b strings.Builder
	for _, e := range n.log(id) {
		if e.stream != stream {
			continue
		}
		b.WriteString(e.text)
		if e.tag == "F" {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// eventually waits for something that no request can wait for.
func (n *node) eventually(what string, ok func() bool) {
	n.t.Helper()
	for range 6000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	n.t.Fatalf("did not happen in a minute: %s", what)
}

// alive says whether the process exists and is not a zombie.
func alive(pid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	return err == nil && !isIn(pid, 'Z')
}

// isIn says whether all threads of the process are in that state.
func isIn(pid int, state rune) bool {
	all, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, path := range all {
		data, err := os.ReadFile(path)
		if err == nil && !strings.Contains(string(data), fmt.Sprintf(") %c ", state)) {
			return false
		}
	}
	return len(all) > 0
}
