package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/test/e2e/machine"
)

// Process is a program of the cluster. It can be killed and started again.
type Process struct {
	machine.Program
	on machine.Machine
}

func (c *Cluster) program(name string) string { return filepath.Join(c.cfg.Programs, name) }

// start starts a program beside the node and waits until ready says nil.
func (c *Cluster) start(ctx context.Context, argv []string, ready func(context.Context) error) (*Process, error) {
	return c.startOn(ctx, c.here, argv, ready)
}

// startOn starts a program on the node or beside it, and waits until ready says nil.
func (c *Cluster) startOn(ctx context.Context, on place, argv []string, ready func(context.Context) error) (*Process, error) {
	name := filepath.Base(argv[0])
	p := &Process{machine.Program{
		Name: name, Argv: argv, Env: c.environment(on), Output: filepath.Join(c.cfg.Output, name+".log"),
	}, on}
	return p, c.begin(ctx, p, ready)
}

// Program starts a further program beside the node and waits until ready says nil.
// Its environment is that of all programs and what it names itself; its output is a
// file of its name.
func (c *Cluster) Program(ctx context.Context, program machine.Program, ready func(context.Context) error) (*Process, error) {
	program.Env = append(c.environment(c.here), program.Env...)
	program.Output = filepath.Join(c.cfg.Output, program.Name+".log")
	p := &Process{program, c.here}
	return p, c.begin(ctx, p, ready)
}

func (c *Cluster) begin(ctx context.Context, p *Process, ready func(context.Context) error) error {
	if err := p.Start(); err != nil {
		return err
	}
	c.processes = append(c.processes, p)
	if err := p.Await(ctx, c.cfg.Patience, ready); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	return nil
}

// Await waits until ready says nil.
func (p *Process) Await(ctx context.Context, patience time.Duration, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		if ended, err := p.on.Ended(p.Name); err != nil {
			return err
		} else if ended {
			return fmt.Errorf("it ended:\n%s", p.Said())
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it is not ready: %w:\n%s", err, p.Said())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Kill ends the program as a crash would, and waits until it is gone.
func (p *Process) Kill() error { return p.on.End(p.Name, unix.SIGKILL) }

// Stop asks the program to end, and waits until it has.
func (p *Process) Stop() error { return p.on.End(p.Name, unix.SIGTERM) }

// Ended says whether the program has ended, and was not started again since.
func (p *Process) Ended() (bool, error) { return p.on.Ended(p.Name) }

// Start starts the program, with the same arguments each time, and waits for nothing.
func (p *Process) Start() error { return p.on.Start(p.Program) }

// Said is the end of what the program said, over all its starts, for errors.
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
func (c *Cluster) environment(on place) []string {
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		return slices.ContainsFunc([]string{"FAIRLEAD_", "PATH=", "TMPDIR=", "HTTP_PROXY=", "HTTPS_PROXY=", "http_proxy=", "https_proxy="},
			func(prefix string) bool { return len(e) >= len(prefix) && e[:len(prefix)] == prefix })
	})
	return append(env, "PATH="+c.cfg.Peers+":"+os.Getenv("PATH"), "KUBECONFIG="+c.Kubeconfig, "TMPDIR="+on.memory)
}
