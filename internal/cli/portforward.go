package cli

import (
	"context"
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"fairlead.run/internal/cli/forward"
	"fairlead.run/internal/cli/pick"
	"fairlead.run/internal/cli/remote"
	"fairlead.run/internal/node/inventory"
)

func (a *app) portForwardCommand() *cobra.Command {
	var addresses []string
	var t target
	cmd := &cobra.Command{
		Use:   "port-forward {POD | TYPE/NAME} [LOCAL:]REMOTE...",
		Short: "Reach ports of a pod by ports of this machine",
		Long: "Listen at local ports, and carry each connection to a port of a pod, until Ctrl-C or the end of the pod; both\n" +
			"close every connection. REMOTE is a number, or a name that a container has for a port. Without LOCAL the local\n" +
			"port is the pod's, and with :REMOTE any that is free. A connection that the pod refuses ends alone.\n\n" + targetHelp,
		Example: "  fairlead port-forward web 8080:80\n  fairlead port-forward deploy/web :http :443",
		Args:    args("POD", "PORT..."),
		RunE: func(cmd *cobra.Command, list []string) error {
			// What is no port is refused before anything is asked.
			if _, err := forward.Parse(list[1:], func(string) (uint16, error) { return 0, nil }); err != nil {
				return usageError{err}
			}
			t.ref = list[0]
			return a.with(cmd.Context(), func(s *session) error {
				return a.portForward(cmd.Context(), s, t, func(p *inventory.Pod) (forward.Listeners, error) {
					ports, err := forward.Parse(list[1:], p.Port)
					if err != nil {
						return nil, err
					}
					return forward.Listen(addresses, ports)
				})
			})
		},
	}
	cmd.Flags().StringSliceVar(&addresses, "address", []string{forward.Localhost}, "addresses of this machine to listen at; localhost is 127.0.0.1 and ::1")
	t.add(cmd)
	return cmd
}

func (a *app) portForward(ctx context.Context, s *session, t target, listen func(*inventory.Pod) (forward.Listeners, error)) error {
	p, err := a.podOf(ctx, s, t, pick.Running)
	if err != nil {
		return err
	}
	if err := inventory.Up(ctx, s.Runtime, p); err != nil {
		return err
	}
	listeners, err := listen(p)
	if err != nil {
		return err
	}
	for _, l := range listeners {
		_, _ = fmt.Fprintf(a.out, "Forwarding from %s -> %d\n", l.Addr(), l.Remote)
	}
	run, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		cancel(inventory.AwaitEnd(run, s.Runtime, p))
	}()
	err = listeners.Run(run, func(ctx context.Context, conn net.Conn, from forward.Listener) {
		_, _ = fmt.Fprintf(a.out, "Handling connection for %d\n", from.Local())
		if err := reach(ctx, s, p, from.Remote, conn); err != nil && ctx.Err() == nil {
			a.note("port %d of pod %s: %s", from.Remote, p.ShortName(), readable(err))
		}
	})
	cancel(nil)
	<-watched
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		return err
	}
	return context.Cause(run)
}

// reach carries a connection to a port of a pod.
func reach(ctx context.Context, s *session, p *inventory.Pod, port uint16, conn net.Conn) error {
	url, err := inventory.PortForwardURL(ctx, s.Runtime, p, port)
	if err != nil {
		return err
	}
	return remote.Tunnel(ctx, url, port, conn)
}
