package runner

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/hook"
	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/probe"
	"fairlead.run/internal/node/volume"
)

// remove stops and removes the worker's pod, and what was prepared for it.
func (w *worker) remove(ctx context.Context, now <-chan struct{}) error {
	errs := []error{w.removeLost(ctx)}
	if id := w.current().ID; id != "" {
		how := Removal{ID: id, Grace: podspec.Grace(w.spec.Pod), Now: now}
		// Containers end in the order of the plan, sidecars last. What that leaves
		// ends with the pod.
		if err := w.performWith(ctx, plan.Next(w.input("the run has ended")), how); err != nil {
			how.Grace = 0
		}
		errs = append(errs, RemovePod(ctx, w.r.cfg.Endpoint.Runtime, how))
	}
	w.endCare()
	w.endLogs()
	if errors.Join(errs...) == nil { // what still runs may still use its volumes
		errs = append(errs, volume.Remove(w.dirs))
	}
	if err := errors.Join(errs...); err != nil {
		return w.fail("remove it", err)
	}
	w.change(func(s *Status) { s.ID, s.Ready = "", 0 })
	return nil
}

// Removal says how to take a pod down.
type Removal struct {
	ID    string // of the sandbox
	Grace int64  // seconds
	// Now, once closed, ends the grace period. Nil means never.
	Now <-chan struct{}
	// Note tells of what failed and held up nothing; nil if nobody listens.
	Note func(text string)
}

// GraceOf is the grace period that a sandbox was started with by fairlead run,
// or Kubernetes' default.
func GraceOf(annotations map[string]string) int64 {
	if n, err := strconv.ParseInt(annotations[podspec.AnnotationGrace], 10, 64); err == nil && n >= 0 {
		return n
	}
	return 30
}

// StopPod stops the containers of a pod, all at once, each with its preStop hook and
// the grace period, and then its sandbox. It leaves them to be looked at.
func StopPod(ctx context.Context, client runtimeapi.RuntimeServiceClient, r Removal) error {
	list, err := client.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: r.ID}})
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	errs := make([]error, len(list.GetContainers()))
	var wg sync.WaitGroup
	for i, c := range list.GetContainers() {
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			continue
		}
		wg.Go(func() {
			r := preStop(ctx, client, c, r)
			if err := stopContainer(ctx, client, c.GetId(), r); err != nil {
				errs[i] = fmt.Errorf("stop container %s: %w", c.GetMetadata().GetName(), err)
			}
		})
	}
	wg.Wait()
	_, err = client.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: r.ID})
	if err != nil && status.Code(err) != codes.NotFound {
		errs = append(errs, fmt.Errorf("stop sandbox: %w", err))
	}
	return errors.Join(errs...)
}

// preStop runs the hook that is recorded on a container, and returns what is left of
// the grace period.
func preStop(ctx context.Context, client runtimeapi.RuntimeServiceClient, c *runtimeapi.Container, r Removal) Removal {
	h := podspec.PreStopOf(c.GetAnnotations())
	if h == nil || r.Grace <= 0 || c.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return r
	}
	began := time.Now()
	within, cut := r.within(ctx, 0)
	defer cut()
	err := hook.Run(within, &probe.Target{ID: c.GetId(), Container: &corev1.Container{}, Executor: client}, h)
	if err != nil && r.Note != nil && within.Err() != context.Canceled && !hasEnded(ctx, client, c.GetId()) {
		r.Note(fmt.Sprintf("container %s: its preStop hook failed: %v", c.GetMetadata().GetName(), err))
	}
	r.Grace = max(r.Grace-int64(time.Since(began)/time.Second), leastGrace)
	return r
}

// within is a context that ends with the grace period and some more time, or when
// that is cut short.
func (r Removal) within(ctx context.Context, more time.Duration) (context.Context, context.CancelFunc) {
	ctx, cut := context.WithTimeout(ctx, time.Duration(r.Grace)*time.Second+more)
	go func() {
		select {
		case <-r.Now:
			cut()
		case <-ctx.Done():
		}
	}()
	return ctx, cut
}

// stopContainer gives the grace period until it is cut short.
func stopContainer(ctx context.Context, client runtimeapi.RuntimeServiceClient, id string, r Removal) error {
	select {
	case <-r.Now:
		r.Grace, r.Now = 0, nil
	default:
	}
	patient, cut := r.within(ctx, 10*time.Second)
	defer cut()
	_, err := client.StopContainer(patient, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: r.Grace})
	if err == nil || status.Code(err) == codes.NotFound {
		return nil
	}
	_, err = client.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id})
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}

// RemovePod stops a pod and removes it with its containers.
func RemovePod(ctx context.Context, client runtimeapi.RuntimeServiceClient, r Removal) error {
	stopErr := StopPod(ctx, client, r)
	_, err := client.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: r.ID})
	if err == nil || status.Code(err) == codes.NotFound {
		return nil // what would not stop is gone nevertheless
	}
	return errors.Join(stopErr, fmt.Errorf("remove sandbox: %w", err))
}

// RemoveFiles removes what a run prepared for a pod: volumes and logs.
func RemoveFiles(root, state, uid string) error {
	if !isUID(uid) {
		return nil // not one of ours
	}
	return volume.Remove(Dirs(root, state, uid))
}

// isUID keeps a sandbox's free text from naming a folder.
func isUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i, c := range s {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		hex := (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')
		if dash != (c == '-') || (!dash && !hex) {
			return false
		}
	}
	return true
}
