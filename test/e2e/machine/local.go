package machine

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// local is this machine.
type local struct {
	patience time.Duration
	mu       sync.Mutex
	started  map[string]*Process // the last one of each name
}

// Process is a program of this machine that was started.
type Process struct {
	os    *os.Process
	ended chan struct{} // closed when it has been reaped
}

// Pid is its process.
func (p *Process) Pid() int { return p.os.Pid }

// Local is this machine. patience is how long a program may take to end; it decides
// nothing but when to give up.
func Local(patience time.Duration) Machine {
	return &local{patience: patience, started: map[string]*Process{}}
}

func (l *local) Start(p Program) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before := l.started[p.Name]; before != nil && !before.hasEnded() {
		return fmt.Errorf("start %s: it runs", p.Name)
	}
	started, err := Launch(p)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	l.started[p.Name] = started
	return nil
}

// Launch starts a program, which ends with the process that has called it.
func Launch(p Program) (*Process, error) {
	out, err := os.OpenFile(p.Output, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the program has a copy
	cmd, ended := exec.Command(p.Argv[0], p.Argv[1:]...), make(chan struct{})
	cmd.Env, cmd.Stdout, cmd.Stderr = p.Env, out, out
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
	if err := <-started; err != nil {
		return nil, err
	}
	return &Process{cmd.Process, ended}, nil
}

func (p *Process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

func (l *local) find(name string) (*Process, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.started[name]
	if p == nil {
		return nil, fmt.Errorf("%s was never started", name)
	}
	return p, nil
}

func (l *local) End(name string, signal syscall.Signal) error {
	p, err := l.find(name)
	if err != nil {
		return err
	}
	if err := p.End(signal, l.patience); err != nil {
		return fmt.Errorf("end %s: %w", name, err)
	}
	return nil
}

// End sends it a signal, and waits until it has ended. One that has ended by itself is
// no error.
func (p *Process) End(signal syscall.Signal, patience time.Duration) error {
	if err := p.os.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(patience):
		return errors.Join(fmt.Errorf("it does not end on %v", signal), p.os.Kill())
	}
}

func (l *local) Ended(name string) (bool, error) {
	p, err := l.find(name)
	return err == nil && p.hasEnded(), err
}

func (l *local) Read(pattern string) (string, error) {
	found, err := filepath.Glob(pattern)
	if err != nil {
		return "", err
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%s is there %d times: %v", pattern, len(found), found)
	}
	data, err := os.ReadFile(found[0])
	return string(data), err
}

func (l *local) Write(path, data string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if strings.HasPrefix(data, "#!") {
		return os.WriteFile(path, []byte(data), 0o755)
	}
	return os.WriteFile(path, []byte(data), 0o644)
}

func (l *local) Remove(path string) error { return os.Remove(path) }

func (l *local) Accepts(network, address string) error {
	conn, err := net.DialTimeout(network, address, l.patience)
	if err != nil {
		return err
	}
	return conn.Close()
}
