// Package hook runs the lifecycle hooks of containers: postStart and preStop, by a
// command in the container, an HTTP request, or a pause.
//
// It runs one hook up to its end. When hooks run, and what follows if one fails,
// is for others to decide.
package hook

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/probe"
)

// PostStart is what a container has to run once it has started, or nil.
func PostStart(ct *corev1.Container) *corev1.LifecycleHandler {
	if ct.Lifecycle == nil {
		return nil
	}
	return ct.Lifecycle.PostStart
}

// PreStop is what a container has to run before it is stopped, or nil.
func PreStop(ct *corev1.Container) *corev1.LifecycleHandler {
	if ct.Lifecycle == nil {
		return nil
	}
	return ct.Lifecycle.PreStop
}

// ErrAway is that the runtime has not answered: the command may have been run, or not, or in part.
var ErrAway = errors.New("the runtime does not answer")

// errLate is why a hook was given up.
var errLate = errors.New("it did not end in time, and was given up")

// Run runs a hook until it ends or ctx does. A command is then killed. To an HTTP
// hook any answer is a success, whatever its status, as for the kubelet.
func Run(ctx context.Context, t *probe.Target, h *corev1.LifecycleHandler) error {
	var err error
	switch {
	case h.Exec != nil:
		err = execute(ctx, t, h.Exec.Command)
	case h.HTTPGet != nil:
		err = t.Hook(ctx, h.HTTPGet)
	case h.Sleep != nil:
		err = sleep(ctx, time.Duration(h.Sleep.Seconds)*time.Second)
	default:
		return errors.New("it is neither exec, nor httpGet, nor sleep")
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errLate
	case errors.Is(err, ErrAway):
		return err
	}
	return errors.New(probe.OneLine(err.Error()))
}

func execute(ctx context.Context, t *probe.Target, command []string) error {
	r := &runtimeapi.ExecSyncRequest{ContainerId: t.ID, Cmd: command}
	if end, ok := ctx.Deadline(); ok {
		// The runtime ends the command even if nobody is left to ask for that.
		r.Timeout = max(int64(math.Ceil(time.Until(end).Seconds())), 1)
	}
	resp, err := t.Executor.ExecSync(ctx, r)
	switch {
	case status.Code(err) == codes.DeadlineExceeded:
		return errLate
	case status.Code(err) == codes.Unavailable:
		return fmt.Errorf("the command cannot be run: %s: %w", probe.OneLine(status.Convert(err).Message()), ErrAway)
	case err != nil:
		return fmt.Errorf("the command cannot be run: %s", status.Convert(err).Message())
	case resp.GetExitCode() != 0:
		return errors.New(probe.DescribeExit(resp))
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
