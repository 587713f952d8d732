package cli

import (
	"context"
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"fairlead.run/internal/cli/forward"
	"fairlead.run/internal/cli/remote"
	"fairlead.run/internal/node/inventory"
)

func (a *app) portForwardCommand() *cobra.Command {
	var addresses []string
	cmd := &cobra.Command{
		Use:   "port-forward POD [LOCAL:]REMOTE...",
		Short: "Reach ports of a pod by ports of this machine",
		Long: "Listen at local ports, and carry each connection to a port of a pod, until Ctrl-C or the end of the pod; both\n" +
			"close every connection. POD is a name, namespace/name, or the start of an id. Without LOCAL the local port is\n" +
			"the pod's, and with :REMOTE any that is free. A connection that the pod refuses ends alone.",
		Example: "  fairlead port-forward web 8080:80\n  fairlead port-forward web :80 :443",
		Args:    args("POD", "PORT..."),
		RunE: func(cmd *cobra.Command, list []string) error {
			ports, err := forward.Parse(list[1:])
			if err != nil {
				return usageError{err}
			}
			return a.with(cmd.Context(), func(s *session) error {
				return a.portForward(cmd.Context(), s, list[0], func() (forward.Listeners, error) { return forward.Listen(addresses, ports) })
			})
		},
	}
	cmd.Flags().StringSliceVar(&addresses, "address", []string{forward.Localhost}, "addresses of this machine to listen at; localhost is 127.0.0.1 and ::1")
	return cmd
}

func (a *app) portForward(ctx context.Context, s *session, ref string, listen func() (forward.Listeners, error)) error {
	pods, err := inventory.List(ctx, s.Runtime)
	if err != nil {
		return err
	}
	p, err := inventory.Find(pods, ref)
	if err != nil {
		return a.unstarted(ctx, ref, "", err)
	}
	if err := inventory.Up(ctx, s.Runtime, p); err != nil {
		return err
	}
	listeners, err := listen()
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
