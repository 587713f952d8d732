package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/handlers"
	"fairlead.run/internal/node/logs"
	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/tend"
	"fairlead.run/internal/node/volume"
)

// worker runs one pod. One goroutine at a time uses it; mu guards what others
// may ask for meanwhile.
type worker struct {
	r          *Runner
	plan       Plan
	spec       *podspec.Context
	dirs       volume.Dirs
	volumes    *volume.Set
	sandbox    *runtimeapi.PodSandboxConfig
	box        *plan.Sandbox // nil before there is one
	lost       []string      // sandboxes that were replaced, and are still there
	containers map[string]*container
	began      time.Time
	in         inbox
	logs       sync.WaitGroup
	tend       *tend.Pod

	mu     sync.Mutex
	status Status
}

// container is the latest attempt of one container.
type container struct {
	spec    *corev1.Container
	id      string
	sandbox string // that it is in
	attempt uint32
	ended   chan struct{} // closed when its log is complete
	exit    *runtimeapi.ContainerStatus
	removed bool   // the runtime does not have it any more, and it is to begin anew
	crashes int    // in a row, for the backoff
	old     string // the attempt before, as long as it is there
	care    *tend.Care
	why     string // it was ended, if it was because of a hook or probe
}

func (w *worker) current() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// change changes the status and tells the observer if that made a difference.
func (w *worker) change(f func(*Status)) {
	w.mu.Lock()
	before := w.status
	f(&w.status)
	after := w.status
	w.mu.Unlock()
	if before.Phase != after.Phase || before.Message != after.Message || before.Ready != after.Ready ||
		before.Restarts != after.Restarts || before.ID != after.ID {
		w.r.cfg.Observer.Changed(after)
	}
}

func (w *worker) fail(step string, err error) error {
	if w.plan.Pod.Owner != "" {
		step = "pod " + w.plan.Pod.Name + ": " + step
	}
	return fmt.Errorf("%s: %s: %w", w.plan.Pod.Origin, step, err)
}

// start starts the pod up to its last container.
func (w *worker) start(ctx context.Context) error {
	if err := os.MkdirAll(w.spec.LogDir, 0o755); err != nil {
		return w.fail("make the log folder", err)
	}
	var err error
	if w.volumes, err = volume.Prepare(ctx, w.spec, w.dirs, volume.Around{}); err != nil {
		return w.fail("prepare volumes", err)
	}
	w.began = time.Now()
	if err := w.startContainers(ctx); err != nil {
		if ctx.Err() != nil {
			return w.fail("wait until it has started", ctx.Err()) // whatever that has cut off
		}
		return err
	}
	w.in.wake() // a probe may have told meanwhile
	ready, message := plan.Ready(w.input("")), w.whyNotReady()
	w.change(func(s *Status) { s.Phase, s.Ready, s.Message = Running, ready, message })
	return nil
}

// startContainers carries plans out until every container was started.
func (w *worker) startContainers(ctx context.Context) error {
	for !w.startedAll() {
		p := plan.Next(w.input(""))
		if p.Phase == corev1.PodFailed {
			return w.startFailure(p)
		}
		w.tellInit()
		if err := w.perform(ctx, p); err != nil {
			return err
		}
		if len(p.Actions) > 0 {
			continue
		}
		again := make(<-chan time.Time)
		if !p.Again.IsZero() {
			again = time.After(time.Until(p.Again))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.in.woken:
		case <-again:
		}
		if err := w.look(ctx); err != nil {
			return err
		}
	}
	return nil
}

// startedAll says that every container was started once, and none is at it.
func (w *worker) startedAll() bool {
	for i := range w.spec.Pod.Spec.Containers {
		c := w.containers[w.spec.Pod.Spec.Containers[i].Name]
		if c == nil || c.exit == nil && c.care.Starts() {
			return false
		}
	}
	return true
}

// startFailure says why a pod never came to its containers.
func (w *worker) startFailure(p plan.Plan) error {
	if p.Reason != "" {
		return w.fail("start its containers", errors.New(p.Reason))
	}
	for i := range w.spec.Pod.Spec.InitContainers {
		c := w.containers[w.spec.Pod.Spec.InitContainers[i].Name]
		if c != nil && c.exit != nil && c.exit.GetExitCode() != 0 {
			return w.fail("init container "+c.spec.Name, errors.New(w.describeExit(c)))
		}
	}
	return w.fail("keep its sandbox", errors.New("it was lost, and the restartPolicy is Never"))
}

// tellInit says what the pod waits for before all its containers have started.
func (w *worker) tellInit() {
	message := w.whyNotReady()
	for i := range w.spec.Pod.Spec.InitContainers {
		c := w.containers[w.spec.Pod.Spec.InitContainers[i].Name]
		if c == nil || plan.Sidecar(c.spec) && c.exit == nil || c.exit != nil && c.exit.GetExitCode() == 0 {
			continue
		}
		message = "init container " + c.spec.Name + " runs"
		if c.exit != nil {
			message = fmt.Sprintf("init container %s: %s; again in %s", c.spec.Name, w.describeExit(c), plan.Backoff(c.crashes))
		}
		break
	}
	if message != "" {
		w.change(func(s *Status) { s.Message = message })
	}
}

func (w *worker) startSandbox(ctx context.Context, attempt uint32) error {
	w.sandbox = podspec.Sandbox(w.spec)
	w.sandbox.Metadata.Attempt = attempt
	runtime := w.r.cfg.Endpoint.Runtime
	resp, err := runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: w.sandbox, RuntimeHandler: w.plan.Handler})
	if err != nil {
		return w.fail("run its sandbox", err)
	}
	id := resp.GetPodSandboxId()
	if w.box != nil {
		w.lost = append(w.lost, w.box.ID)
	}
	w.box = &plan.Sandbox{ID: id, Attempt: attempt, Ready: true}
	w.change(func(s *Status) { s.ID = id })
	status, err := runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		return w.fail("ask for its address", err)
	}
	w.spec.IPs = podspec.AddressesOf(status.GetStatus())
	w.change(func(s *Status) {
		s.Addresses = w.spec.Addresses()
		if h := handlers.Of(status); h != "" {
			s.Handler = h
		}
	})
	if err := w.writeHosts(); err != nil {
		return w.fail("write its hosts file", err)
	}
	return nil
}

// launch creates and starts the next attempt of a container.
func (w *worker) launch(ctx context.Context, ct *corev1.Container) error {
	c := w.containers[ct.Name]
	if c == nil {
		c = &container{spec: ct}
		w.containers[ct.Name] = c
	} else {
		c.endLog() // of an attempt that nobody saw end
		c.care.Abandon()
		c.care, c.why = nil, ""
		c.attempt++
		if !c.removed && c.sandbox == w.box.ID {
			c.old = c.id
		}
	}
	cfg, err := w.configure(ctx, ct, c.attempt)
	if err != nil {
		return w.fail("configure container "+ct.Name, err)
	}
	path := filepath.Join(w.spec.LogDir, cfg.GetLogPath())
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return w.fail("make the log folder of container "+ct.Name, err)
	}
	runtime := w.r.cfg.Endpoint.Runtime
	created, err := runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: w.box.ID, Config: cfg, SandboxConfig: w.sandbox,
	})
	if err != nil {
		return w.fail("create container "+ct.Name, err)
	}
	c.id, c.sandbox, c.exit, c.removed = created.GetContainerId(), w.box.ID, nil, false
	if _, err := runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.id}); err != nil {
		return w.fail("start container "+ct.Name, err)
	}
	w.followLog(ct.Name, path, c)
	if c.care, err = w.tend.Begin(ctx, tend.Attempt{Container: ct, ID: c.id, Began: time.Now()}); err != nil {
		return w.fail("probe container "+ct.Name, err)
	}
	return nil
}

func (w *worker) configure(ctx context.Context, ct *corev1.Container, attempt uint32) (*runtimeapi.ContainerConfig, error) {
	mounts, err := w.volumes.Mounts(ctx, ct)
	if err != nil {
		return nil, err
	}
	words, err := w.lastWords(ct, attempt).Mount()
	if err != nil {
		return nil, err
	}
	mounts = append(w.addHosts(mounts), words)
	return podspec.Container(w.spec, podspec.Attempt{Container: ct, Number: attempt, Image: w.spec.Pulled(ct.Image), Mounts: mounts})
}

// followLog passes the container's output on until it is known to have ended.
func (w *worker) followLog(name, path string, c *container) {
	ended := make(chan struct{})
	c.ended = ended
	pod := w.spec.Pod
	w.logs.Go(func() {
		err := logs.Read(context.Background(), path, logs.Options{Tail: -1, Follow: true, Ended: ended}, func(l logs.Line) error {
			w.r.cfg.Observer.Line(pod.Namespace, pod.Name, name, l)
			return nil
		})
		if err != nil {
			w.r.cfg.Observer.Note(fmt.Sprintf("the log of pod %s, container %s cannot be read: %v", pod.Name, name, err))
		}
	})
}

func (c *container) endLog() {
	if c.ended != nil {
		close(c.ended)
		c.ended = nil
	}
}

// endCare ends what is left of hooks and probes.
func (w *worker) endCare() {
	for _, c := range w.containers {
		c.care.Abandon()
	}
	w.tend.Wait()
}

func (w *worker) endLogs() {
	for _, c := range w.containers {
		c.endLog()
	}
	w.logs.Wait()
}
