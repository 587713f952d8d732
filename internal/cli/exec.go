package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"fairlead.run/internal/cli/pick"
	"fairlead.run/internal/cli/remote"
	"fairlead.run/internal/node/inventory"
)

type execFlags struct {
	target
	stdin, tty bool
	container  string
}

func (a *app) execCommand() *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:     "exec {POD | TYPE/NAME} [flags] -- COMMAND [ARGUMENT...]",
		Short:   "Run a command in a container",
		Long:    "Run a command in a running container. The exit code is the command's.\n\n" + targetHelp,
		Example: "  fairlead exec -it web-0 -- sh\n  fairlead exec deploy/web -- date",
		Args:    args("POD", "COMMAND..."),
		RunE: func(cmd *cobra.Command, list []string) error {
			f.ref = list[0]
			if cmd.ArgsLenAtDash() < 0 { // its flags may have been taken for those of this command
				return usageError{fmt.Errorf("the command that is to run goes behind --, with all its flags, as in %s %s -- %s", cmd.CommandPath(), f.ref, list[1])}
			}
			return a.with(cmd.Context(), func(s *session) error { return a.exec(cmd.Context(), s, list[1:], f) })
		},
	}
	cmd.Flags().BoolVarP(&f.stdin, "stdin", "i", false, "pass standard input on")
	cmd.Flags().BoolVarP(&f.tty, "tty", "t", false, "give the command a terminal")
	cmd.Flags().StringVarP(&f.container, "container", "c", "", "container to run in (default the first that runs)")
	f.add(cmd)
	cmd.Flags().SetInterspersed(true)
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; flags of the command that is to run go behind --: %s; see %s --help", err, usage(c), c.CommandPath())}
	})
	return cmd
}

func (a *app) exec(ctx context.Context, s *session, command []string, f execFlags) error {
	p, err := a.podOf(ctx, s, f.target, pick.Running)
	if err != nil {
		return err
	}
	c, err := p.Find(f.container)
	if err != nil {
		return a.unstarted(ctx, target{ref: p.Namespace + "/" + p.Name}, f.container, err)
	}
	url, err := inventory.ExecURL(ctx, s.Runtime, c, inventory.Command{Args: command, Stdin: f.stdin, TTY: f.tty})
	if err != nil {
		return fmt.Errorf("pod %s: %w", p.ShortName(), err)
	}
	streams := remote.Streams{Stdout: a.out}
	if f.stdin {
		streams.Stdin = a.in
	}
	if !f.tty {
		streams.Stderr = a.err
		return a.stream(ctx, url, streams)
	}
	restore, sizes, err := a.raw(f.stdin)
	if err != nil {
		return err
	}
	defer restore()
	streams.TTY, streams.Sizes = true, sizes
	return a.stream(ctx, url, streams)
}

func (a *app) stream(ctx context.Context, url string, s remote.Streams) error {
	err := remote.Run(ctx, url, s)
	if ctx.Err() != nil {
		return errInterrupted
	}
	var exit *remote.ExitError
	if err == nil || errors.As(err, &exit) {
		return err
	}
	return fmt.Errorf("exec: %w", err)
}

// raw passes keys on unread, if our input is a terminal, and follows the size
// of the window. Without a terminal there is nothing to do.
func (a *app) raw(stdin bool) (restore func(), sizes <-chan remote.Size, err error) {
	restore = func() {}
	if fd, ok := terminal(a.in); ok && stdin {
		old, err := term.MakeRaw(fd)
		if err != nil {
			return nil, nil, fmt.Errorf("set the terminal to raw: %w", err)
		}
		restore = func() { _ = term.Restore(fd, old) }
	}
	out, ok := terminal(a.out)
	if !ok {
		return restore, nil, nil
	}
	changes, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(changes, syscall.SIGWINCH)
	to := make(chan remote.Size, 1)
	go watchSize(out, changes, to, done)
	old := restore
	return func() {
		signal.Stop(changes)
		close(done)
		old()
	}, to, nil
}

func watchSize(fd int, changes <-chan os.Signal, to chan<- remote.Size, done <-chan struct{}) {
	for {
		if w, h, err := term.GetSize(fd); err == nil {
			select {
			case to <- remote.Size{Width: uint16(w), Height: uint16(h)}:
			case <-done:
				return
			}
		}
		select {
		case <-changes:
		case <-done:
			return
		}
	}
}
