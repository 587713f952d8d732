package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a program may take to start or to end. It decides
// nothing but when to give up.
const patience = 3 * time.Minute

// Process is a program of the cluster. It can be killed and started again.
type Process struct {
	Name string
	// Output is the file with what it says, over all its starts.
	Output string

	argv  []string
	env   []string
	cmd   *exec.Cmd
	ended chan struct{}
}

func (c *Cluster) program(name string) string { return filepath.Join(c.cfg.Programs, name) }

// start starts a program and waits until ready says nil.
func (c *Cluster) start(ctx context.Context, argv []string, ready func(context.Context) error) (*Process, error) {
	name := filepath.Base(argv[0])
	p := &Process{Name: name, Output: filepath.Join(c.cfg.Output, name+".log"), argv: argv, env: c.environment()}
	if err := p.launch(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c.processes = append(c.processes, p)
	if err := p.await(ctx, ready); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

func (p *Process) launch() error {
	out, err := os.OpenFile(p.Output, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer out.Close() // the program has a copy
	cmd, ended := exec.Command(p.argv[0], p.argv[1:]...), make(chan struct{})
	cmd.Env, cmd.Stdout, cmd.Stderr = p.env, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	started := make(chan error)
	go func() {
		// Never unlocked: the kernel kills the program when the thread that started it ends.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its output
			close(ended)
		}
	}()
	p.cmd, p.ended = cmd, ended
	return <-started
}

// await waits until ready says nil.
func (p *Process) await(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("it ended:\n%s", p.Said())
		case <-ctx.Done():
			return fmt.Errorf("it is not ready: %w:\n%s", err, p.Said())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Kill ends the program as a crash would, and waits until it is gone.
func (p *Process) Kill() error { return p.end(unix.SIGKILL) }

// Stop asks the program to end, and waits until it has.
func (p *Process) Stop() error { return p.end(unix.SIGTERM) }

func (p *Process) end(signal syscall.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end %s: %w", p.Name, err)
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(patience):
		return errors.Join(fmt.Errorf("%s does not end on %v", p.Name, signal), p.cmd.Process.Kill())
	}
}

// Start starts the program again, with the same arguments, and waits for nothing.
func (p *Process) Start() error {
	if err := p.launch(); err != nil {
		return fmt.Errorf("start %s again: %w", p.Name, err)
	}
	return nil
}

// Said is the end of what the program said, for errors.
func (p *Process) Said() string {
	b, err := os.ReadFile(p.Output)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4096):])
}

// environment is that of all programs: ours, with the runtime's own folder on
// PATH, because containerd looks for its shim there, and with a folder for
// temporary files that goes with the cluster: not all specs remove theirs.
func (c *Cluster) environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		return slices.ContainsFunc([]string{"FAIRLEAD_", "PATH=", "TMPDIR=", "HTTP_PROXY=", "HTTPS_PROXY=", "http_proxy=", "https_proxy="},
			func(prefix string) bool { return len(e) >= len(prefix) && e[:len(prefix)] == prefix })
	})
	return append(env, "PATH="+c.cfg.Peers+":"+os.Getenv("PATH"), "KUBECONFIG="+c.Kubeconfig, "TMPDIR="+c.cfg.Arena.Memory)
}
