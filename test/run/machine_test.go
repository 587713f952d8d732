package run

import (
	"bytes"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"fairlead.run/test/node"
)

// patience is when to give up on what should be quick.
var patience = node.Patience

var number atomic.Int32

// machine is folders and a bridge for one test. Nothing of it may be left
// when the test ends.
type machine struct {
	t      *testing.T
	dir    string
	bridge string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	n := number.Add(1)
	dir, err := os.MkdirTemp("", "flr")
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, dir: dir, bridge: fmt.Sprintf("flr%d-%d", n, os.Getpid()%100000)}
	config := fmt.Sprintf("version = 1\n[network]\nconf_dir = %q\nbridge = %q\nipv4 = \"10.198.%d.0/24\"\nipv6 = \"fd5e:198:%x::/64\"\n", dir+"/cni", m.bridge, n, n)
	m.write("config.toml", config)
	m.write("classes.yaml", "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: on-runc}\nhandler: runc\n---\n"+
		"apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: on-crun}\nhandler: crun\n")
	t.Cleanup(m.end)
	m.want(0, "image", "import", archive)
	return m
}

func (m *machine) write(name, text string) string {
	m.t.Helper()
	path := filepath.Join(m.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
	return path
}

// command is fairlead with this machine's folders.
func (m *machine) command(args ...string) *exec.Cmd {
	all := append([]string{"--config", m.dir + "/config.toml", "--root", m.dir + "/lib", "--state", m.dir + "/run"}, args...)
	cmd := exec.Command(filepath.Join(bin, "fairlead"), all...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// result is what a command left.
type result struct {
	code     int
	out, err string
}

func (m *machine) run(stdin string, args ...string) result {
	m.t.Helper()
	cmd := m.command(args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		m.t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// want runs a command and insists on its exit code.
func (m *machine) want(code int, args ...string) result {
	m.t.Helper()
	return m.wantWith("", code, args...)
}

func (m *machine) wantWith(stdin string, code int, args ...string) result {
	m.t.Helper()
	r := m.run(stdin, args...)
	if r.code != code {
		m.t.Fatalf("fairlead %s ended with %d, want %d\n%s%s", strings.Join(args, " "), r.code, code, r.out, r.err)
	}
	return r
}

// job is a command in the background.
type job struct {
	t        *testing.T
	cmd      *exec.Cmd
	out, err *buffer
	done     chan struct{}
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (m *machine) background(args ...string) *job {
	m.t.Helper()
	return m.start(m.command(args...))
}

func (m *machine) start(cmd *exec.Cmd) *job {
	m.t.Helper()
	j := &job{t: m.t, cmd: cmd, out: &buffer{}, err: &buffer{}, done: make(chan struct{})}
	j.cmd.Stdout, j.cmd.Stderr = j.out, j.err
	if err := j.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	go func() {
		_ = j.cmd.Wait()
		close(j.done)
	}()
	return j
}

// await waits until text is in what the job prints.
func (j *job) await(b *buffer, text string) {
	j.t.Helper()
	for end := time.Now().Add(patience); !strings.Contains(b.String(), text); time.Sleep(10 * time.Millisecond) {
		select {
		case <-j.done:
			if !strings.Contains(b.String(), text) {
				j.t.Fatalf("the job ended without %q\n%s%s", text, j.out, j.err)
			}
		default:
		}
		if time.Now().After(end) {
			j.t.Fatalf("%q does not come\n%s%s", text, j.out, j.err)
		}
	}
}

func (j *job) signal(s syscall.Signal) {
	j.t.Helper()
	if err := j.cmd.Process.Signal(s); err != nil {
		j.t.Error(err)
	}
}

// ends waits for the end and insists on the exit code.
func (j *job) ends(code int) {
	j.t.Helper()
	select {
	case <-j.done:
	case <-time.After(patience):
		_ = j.cmd.Process.Kill()
		<-j.done
		j.t.Fatalf("the job does not end\n%s%s", j.out, j.err)
	}
	if got := j.cmd.ProcessState.ExitCode(); got != code {
		j.t.Errorf("the job ended with %d, want %d\n%s%s", got, code, j.out, j.err)
	}
}

// end removes all pods and looks for what is left.
func (m *machine) end() {
	m.want(0, "rm", "--all", "--grace", "0")
	var left []string
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if left = m.left(); len(left) == 0 {
			break
		}
	}
	if len(left) > 0 {
		m.t.Errorf("left on the host:\n%s", strings.Join(left, "\n"))
		return
	}
	if err := os.RemoveAll(m.dir); err != nil {
		m.t.Error(err)
	}
}

// left lists what bears this machine's names.
func (m *machine) left() (out []string) {
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, m.dir+"/") {
			out = append(out, "mount "+strings.Fields(line)[4])
		}
	}
	links, _ := net.Interfaces()
	for _, l := range links {
		if l.Name == m.bridge {
			out = append(out, "link "+l.Name)
		}
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range processes {
		if args, _ := os.ReadFile(p); bytes.Contains(args, []byte(m.dir)) {
			out = append(out, "process "+strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	for _, dir := range []string{"lib/run", "lib/containers", "run/run", "run/pods", "run/containers", "lib/network/attachments"} {
		_ = filepath.WalkDir(filepath.Join(m.dir, dir), func(path string, _ fs.DirEntry, err error) error {
			if err == nil && path != filepath.Join(m.dir, dir) {
				out = append(out, "file "+path)
			}
			return nil
		})
	}
	return out
}
