package standin

import (
	"context"
	"syscall"

	"fairlead.run/internal/monitor/deputy"
	"fairlead.run/internal/sentry"
)

// stand waits for the container and ends as it did. A container whose sandbox
// dies was killed with it.
func (o *options) stand() int {
	ctx := context.Background()
	go o.pass(ctx)
	status, err := o.wait(ctx)
	if err != nil {
		deputy.EndBy(syscall.SIGKILL)
	}
	if status.Signaled() {
		deputy.EndBy(status.Signal())
	}
	return status.ExitStatus()
}

func (o *options) wait(ctx context.Context) (sentry.Status, error) {
	socket, err := sentry.Socket(o.root, o.sandbox)
	if err != nil {
		return 0, err
	}
	return sentry.Wait(ctx, socket, o.id)
}

// pass passes signals on to the container. Whoever kills one asks its sandbox.
func (o *options) pass(ctx context.Context) {
	deputy.Signals(func(number syscall.Signal) {
		if socket, err := sentry.Socket(o.root, o.sandbox); err == nil {
			// One that has ended needs no signal, and nobody hears of other errors.
			_ = sentry.Signal(ctx, socket, o.id, number, false)
		}
	})
}
