package runner

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/plan"
)

// listing is what a runtime has of a sandbox.
type listing struct {
	ready      bool
	containers map[string]runtimeapi.ContainerState // by id
}

// list asks the runtime what it has of a sandbox.
func (r *Runner) list(ctx context.Context, sandbox string) (listing, error) {
	l := listing{containers: map[string]runtimeapi.ContainerState{}}
	containers, err := r.cfg.Endpoint.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: sandbox}})
	if err != nil {
		return l, fmt.Errorf("list containers: %w", err)
	}
	sandboxes, err := r.cfg.Endpoint.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{Id: sandbox}})
	if err != nil {
		return l, fmt.Errorf("list pods: %w", err)
	}
	for _, c := range containers.GetContainers() {
		l.containers[c.GetId()] = c.GetState()
	}
	for _, s := range sandboxes.GetItems() {
		l.ready = l.ready || s.GetId() == sandbox && s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return l, nil
}

// look asks the runtime about this pod alone.
func (w *worker) look(ctx context.Context) error {
	if w.box == nil {
		return nil
	}
	l, err := w.r.list(ctx, w.box.ID)
	if err != nil {
		return w.fail("look at it", err)
	}
	return w.observe(ctx, l)
}

// observe takes over what a listing says.
func (w *worker) observe(ctx context.Context, l listing) error {
	if !l.ready {
		w.box = &plan.Sandbox{ID: w.box.ID, Attempt: w.box.Attempt}
	}
	for _, c := range w.containers {
		state, known := l.containers[c.id]
		if c.exit != nil || c.sandbox != w.box.ID || known && state != runtimeapi.ContainerState_CONTAINER_EXITED {
			continue
		}
		if err := w.noteExit(ctx, c, known); err != nil {
			return err
		}
	}
	return nil
}

// noteExit reads how a container ended.
func (w *worker) noteExit(ctx context.Context, c *container, known bool) error {
	exit := &runtimeapi.ContainerStatus{ExitCode: 137, Reason: "Gone", Message: "the container was removed by somebody else", FinishedAt: time.Now().UnixNano()}
	if known {
		resp, err := w.r.cfg.Endpoint.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.id})
		switch {
		case err == nil:
			exit = resp.GetStatus()
		case ctx.Err() != nil:
			return ctx.Err()
		case status.Code(err) != codes.NotFound:
			return w.fail("ask how container "+c.spec.Name+" ended", err)
		}
	}
	c.exit = exit
	c.care.Release()
	c.endLog()
	c.crashes++
	if time.Duration(exit.GetFinishedAt()-exit.GetStartedAt()) >= plan.ForgetAfter {
		c.crashes = 1
	}
	return nil
}

// input is what is known of the pod. Ending is why all of it is to end.
func (w *worker) input(ending string) plan.Input {
	in := plan.Input{
		Pod: w.spec.Pod, Now: time.Now(), Began: w.began, Ending: ending,
		Observed: plan.Observed{Sandbox: w.box, Containers: map[string]*plan.Container{}},
	}
	for name, c := range w.containers {
		if c.removed {
			continue
		}
		seen := &plan.Container{ID: c.id, Sandbox: c.sandbox, Attempt: c.attempt, State: plan.Running, Crashes: c.crashes}
		if c.exit == nil {
			c.care.Tell(seen)
		} else {
			seen.State, seen.ExitCode, seen.Finished = plan.Exited, c.exit.GetExitCode(), time.Unix(0, c.exit.GetFinishedAt())
		}
		in.Containers[name] = seen
	}
	return in
}
