package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/monitor/cgroup"
	"fairlead.run/internal/monitor/linux"
	"fairlead.run/internal/threads"
)

// binaryName is what the monitor's program is called.
const binaryName = "fairlead-monitor"

// startLimit bounds the start of a monitor, which takes milliseconds.
const startLimit = 10 * time.Second

// Ensure returns a client of the monitor that serves the state directory, and
// starts one if there is none. The monitor outlives its starter.
func Ensure(ctx context.Context, o Options) (*Client, error) {
	if !filepath.IsAbs(o.StateDir) {
		return nil, fmt.Errorf("find the monitor: state directory %q is not an absolute path: %w", o.StateDir, errdefs.ErrInvalidArgument)
	}
	c := &Client{options: o}
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	return c, conn.Close()
}

// start starts a monitor and waits until it serves. That another one was
// started meanwhile is fine.
func start(ctx context.Context, o Options) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	binary, err := o.binary()
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start the monitor: %w", err)
	}
	defer func() { _ = r.Close() }()
	args := []string{"launch", "--state=" + o.StateDir, "--ready-fd=3"}
	if name := o.cgroup(); name != "" {
		args = append(args, "--cgroup="+name)
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), o.Env...)
	cmd.ExtraFiles = []*os.File{w}
	said, err := cmd.CombinedOutput()
	_ = w.Close()
	if err != nil {
		text := strings.TrimSpace(string(said))
		if threads.Tells(text) { // Go's runtime then adds what all its threads did
			text, _, _ = strings.Cut(text, "\n")
			err = fmt.Errorf("%w: %w", err, syscall.EAGAIN)
		}
		return fmt.Errorf("start the monitor: %s: %w: %w: %s", binary, errdefs.ErrUnavailable, threads.Explain(err), text)
	}
	stop := context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	// The pipe closes when the monitor is ready, or has failed and said why.
	answer, err := io.ReadAll(io.LimitReader(r, 4096))
	text := strings.TrimSpace(string(answer))
	if err == nil && text == "ok" {
		return nil
	}
	if err == nil && strings.Contains(text, errdefs.ErrAlreadyExists.Error()) {
		return o.awaitOther(ctx) // another starter was faster
	}
	if conn, dialed := o.dial(ctx); dialed == nil {
		return conn.Close()
	}
	if err != nil {
		err = fmt.Errorf("it was not ready in time; see %s: %w", filepath.Join(o.StateDir, "monitor", "monitor.log"), context.Cause(ctx))
		return fmt.Errorf("start the monitor: %w: %w", errdefs.ErrUnavailable, err)
	}
	return fmt.Errorf("start the monitor: %w: %s", errdefs.ErrUnavailable, text)
}

// awaitOther waits until the monitor serves that somebody else has started.
func (o *Options) awaitOther(ctx context.Context) error {
	for {
		conn, err := o.dial(ctx)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the monitor that another program has started: %w; see %s", err, filepath.Join(o.StateDir, "monitor", "monitor.log"))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (o *Options) cgroup() string {
	switch o.Cgroup {
	case NoCgroup:
		return ""
	case "":
		return DefaultCgroup
	}
	return o.Cgroup
}

// binary finds the monitor's program.
func (o *Options) binary() (string, error) {
	if o.Binary != "" {
		return o.Binary, nil
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), binaryName)
		if st, err := os.Stat(beside); err == nil && st.Mode().IsRegular() {
			return beside, nil
		}
	}
	path, err := exec.LookPath(binaryName)
	if err != nil {
		return "", fmt.Errorf("start the monitor: %s is neither beside this program nor on PATH; install both together: %w", binaryName, errdefs.ErrUnavailable)
	}
	return path, nil
}

// Shutdown ends the monitor and removes what it made. While processes live it
// fails with ErrPrecondition, or with force they are killed first. It returns
// once both of its processes have ended.
func (c *Client) Shutdown(ctx context.Context, force bool) error {
	conn, err := c.options.dial(ctx)
	if errors.Is(err, errNobody) && !c.options.left() {
		c.removeCgroup()
		return nil
	}
	if err == nil {
		err = conn.Close()
	}
	if err != nil && !errors.Is(err, errNobody) {
		return err
	}
	// Starts one to end what a monitor that was killed has left.
	info, err := c.Info(ctx)
	if err != nil {
		return err
	}
	var opened []*os.File
	for _, pid := range []int{info.InnerPID, info.OuterPID} {
		if f, err := linux.OpenProcess(pid, 0); err == nil {
			opened = append(opened, f)
		}
	}
	defer func() {
		for _, f := range opened {
			_ = f.Close()
		}
	}()
	if err := c.askToEnd(ctx, force); err != nil {
		return err
	}
	deadline := time.Now().Add(startLimit)
	for _, f := range opened {
		_ = f.SetReadDeadline(deadline)
		if err := linux.AwaitEnd(f); err != nil {
			return fmt.Errorf("shut the monitor down: its processes %d and %d did not end: %w: %w", info.OuterPID, info.InnerPID, errdefs.ErrDeadline, err)
		}
	}
	c.removeCgroup()
	return nil
}

// left says whether a monitor has left its folder.
func (o *Options) left() bool {
	_, err := os.Stat(filepath.Dir(o.socket()))
	return err == nil
}

// askToEnd sends the request until it is answered or nobody is left to answer.
func (c *Client) askToEnd(ctx context.Context, force bool) error {
	r := request{op: monitorv1.OpShutdown, body: monitorv1.ShutdownRequest{Force: force}, once: true}
	for deadline := time.Now().Add(gap); ; {
		conn, _, _, err := c.try(ctx, r, nil)
		switch {
		case err == nil:
			return conn.Close()
		case errors.Is(err, errNobody):
			return nil
		case !errors.Is(err, errdefs.ErrUnavailable), time.Now().After(deadline), ctx.Err() != nil:
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// removeCgroup removes the monitor's cgroup, which takes the kernel a moment
// after the end of its processes. What cannot be removed is in use by others.
func (c *Client) removeCgroup() {
	name := c.options.cgroup()
	if name == "" {
		return
	}
	for range 50 {
		if cgroup.Remove(name) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
