package runtimetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// Fake is a handler without isolation: containers are processes in a chroot.
// It keeps the contract but for namespaces, cgroups and terminals, and is for
// tests of what uses handlers. It needs root, and busybox-static or another
// static program in the root file system.
type Fake struct {
	world *world
}

// world is what outlives a handler: the processes.
type world struct {
	dir string

	mu   sync.Mutex
	runs map[string]*running
}

// running is a process, or one that has ended.
type running struct {
	cmd     *exec.Cmd
	process pod.RunningProcess
	ended   chan struct{}
	exit    pod.Exit // once ended is closed
}

// NewFake makes a handler on a state directory with no containers.
func NewFake(stateDir string) *Fake {
	return &Fake{world: &world{dir: stateDir, runs: map[string]*running{}}}
}

// Reopen is a new handler for the same containers.
func (f *Fake) Reopen() *Fake { return &Fake{world: f.world} }

// Info implements Handler.
func (f *Fake) Info() pod.HandlerInfo {
	return pod.HandlerInfo{Name: "fake", Kind: "oci", Version: "0", OCI: "1.1.0", Ready: true}
}

// Start implements Handler.
func (f *Fake) Start(_ context.Context, s pod.StartRequest) (pod.RunningProcess, error) {
	if r := f.world.find(s.ID); r != nil {
		return r.process, nil
	}
	r, err := f.world.start(s)
	if err != nil {
		return pod.RunningProcess{}, fmt.Errorf("start container %s with handler fake: %w", s.ID, err)
	}
	return r.process, nil
}

func (w *world) start(s pod.StartRequest) (*running, error) {
	out := os.Stdout
	if s.LogPath != "" {
		log, err := os.OpenFile(s.LogPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
		if err != nil {
			return nil, err
		}
		defer log.Close()
		out = log
	}
	process, err := w.process(s.ID)
	if err != nil {
		return nil, err
	}
	return w.launch(s.ID, process, [3]*os.File{nil, out, out})
}

func (w *world) process(id string) (*specs.Process, error) {
	data, err := os.ReadFile(filepath.Join(w.dir, "containers", id, "config.json"))
	if err != nil {
		return nil, err
	}
	var s specs.Spec
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, err
	}
	return s.Process, nil
}

// launch starts a process in the root file system of a container and keeps it
// under id.
func (w *world) launch(id string, p *specs.Process, stdio [3]*os.File) (*running, error) {
	container, _, _ := strings.Cut(id, "/")
	root := filepath.Join(w.dir, "containers", container, "rootfs")
	path, err := lookUp(root, p)
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{Path: path, Args: p.Args, Env: p.Env, Dir: p.Cwd}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Setpgid: true}
	// A nil *os.File in an interface would not be nil.
	if stdio[0] != nil {
		cmd.Stdin = stdio[0]
	}
	if stdio[1] != nil {
		cmd.Stdout = stdio[1]
	}
	if stdio[2] != nil {
		cmd.Stderr = stdio[2]
	}
	return w.keep(id, cmd)
}

func (w *world) keep(id string, cmd *exec.Cmd) (*running, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := &running{cmd: cmd, ended: make(chan struct{})}
	r.process = pod.RunningProcess{PID: cmd.Process.Pid, StartTime: startTime(cmd.Process.Pid)}
	w.mu.Lock()
	w.runs[id] = r
	w.mu.Unlock()
	go r.reap()
	return r, nil
}

// reap ends with the process, which Delete and Close see to.
func (r *running) reap() {
	_ = r.cmd.Wait() // what counts is in ProcessState
	status := r.cmd.ProcessState.Sys().(syscall.WaitStatus)
	r.exit = pod.Exit{Code: int32(status.ExitStatus()), FinishedAt: time.Now()}
	if status.Signaled() {
		r.exit.Signal = int(status.Signal())
		r.exit.Code = int32(128 + r.exit.Signal)
	}
	close(r.ended)
}

// lookUp finds the program of a process in a root file system.
func lookUp(root string, p *specs.Process) (string, error) {
	if len(p.Args) == 0 || p.Args[0] == "" {
		return "", fmt.Errorf("there is no command: %w", errdefs.ErrInvalidArgument)
	}
	name := p.Args[0]
	if strings.Contains(name, "/") {
		if _, err := os.Lstat(filepath.Join(root, name)); err != nil {
			return "", fmt.Errorf("the container has no program %q: %w", name, errdefs.ErrInvalidArgument)
		}
		return name, nil
	}
	for _, e := range p.Env {
		path, ok := strings.CutPrefix(e, "PATH=")
		for _, dir := range filepath.SplitList(path) {
			if _, err := os.Lstat(filepath.Join(root, dir, name)); ok && err == nil {
				return filepath.Join(dir, name), nil
			}
		}
		if ok {
			return "", fmt.Errorf("the container has no program %q in its PATH (%s): %w", name, path, errdefs.ErrInvalidArgument)
		}
	}
	return "", fmt.Errorf("the container has no program %q: %w", name, errdefs.ErrInvalidArgument)
}

func startTime(pid int) uint64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	var start uint64
	// Field 22; the name in parentheses, the second, may contain anything.
	if f := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:]); len(f) > 19 {
		_, _ = fmt.Sscan(string(f[19]), &start)
	}
	return start
}

func (w *world) find(id string) *running {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runs[id]
}

// Kill implements Handler.
func (f *Fake) Kill(_ context.Context, c *pod.Container, sig string, all bool) error {
	name := strings.ToUpper(sig)
	number := unix.SignalNum("SIG" + strings.TrimPrefix(name, "SIG"))
	if name == "15" {
		number = unix.SIGTERM
	}
	if number == 0 {
		return fmt.Errorf("kill container %s: there is no signal %q: %w", c.ID, sig, errdefs.ErrInvalidArgument)
	}
	r := f.world.find(string(c.ID))
	if r == nil {
		return nil
	}
	return r.signal(number, all)
}

func (r *running) signal(sig syscall.Signal, all bool) error {
	pid := r.process.PID
	select {
	case <-r.ended:
		if !all {
			return nil
		}
	default:
	}
	if all {
		pid = -pid
	}
	if err := unix.Kill(pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// Update implements Handler. There are no cgroups, so it changes nothing.
func (f *Fake) Update(_ context.Context, id string, _ pod.Bundle) error {
	if f.world.find(id) == nil {
		return fmt.Errorf("update container %s: %w", id, errdefs.ErrNotFound)
	}
	return nil
}

// Delete implements Handler.
func (f *Fake) Delete(ctx context.Context, id string) error {
	r := f.world.find(id)
	if r == nil {
		return nil
	}
	if err := r.signal(unix.SIGKILL, true); err != nil {
		return err
	}
	select {
	case <-r.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("delete container %s: %w", id, errdefs.ErrDeadline)
	}
}

// Observe implements Handler.
func (f *Fake) Observe(_ context.Context, id string, _ *pod.RunningProcess) pod.Seen {
	r := f.world.find(id)
	if r == nil {
		return pod.Seen{}
	}
	select {
	case <-r.ended:
		exit := r.exit
		return pod.Seen{Exit: &exit}
	default:
		return pod.Seen{Alive: true}
	}
}

// Forget drops the end of a container. It is idempotent.
func (f *Fake) Forget(_ context.Context, id string) error {
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	delete(f.world.runs, id)
	return nil
}
