package agent

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/node/admission"
	"fairlead.run/internal/node/holds"
	"fairlead.run/internal/node/logs/links"
	"fairlead.run/internal/node/outfit"
	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/status"
	"fairlead.run/internal/node/view"
)

// start creates and starts an attempt at a container.
func (w *worker) start(ctx context.Context, ct *corev1.Container, a plan.Action) error {
	err := w.launch(ctx, ct, a)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var why *holds.NotStarted
	if !errors.As(err, &why) {
		delete(w.holds, ct.Name)
		return err
	}
	w.holds.Put(ct.Name, why)
	return nil
}

// launch starts what is there already, or what it makes.
func (w *worker) launch(ctx context.Context, ct *corev1.Container, a plan.Action) error {
	var cfg *runtimeapi.ContainerConfig
	if a.ID == "" {
		var err error
		if cfg, err = w.configure(ctx, ct, w.attempt(ct, a)); err != nil {
			return err
		}
	}
	release, err := w.slot(ctx)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := call(ctx)
	defer cancel()
	w.tellRestart(ct.Name)
	id := a.ID
	if cfg != nil {
		if id, err = w.create(ctx, ct, cfg); err != nil {
			return err
		}
	}
	w.view.Made[id] = true
	if err := errors.Join(w.intendRun(), w.intendHook(ct, id)); err != nil {
		return err
	}
	if _, err := w.a.cfg.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		w.view.Refused[id] = !view.Unheard(err) // so that the next attempt is another one
		return w.notStarted(ct, holds.RunError, err)
	}
	w.a.stats.Container(w.pod, ct.Name, "")
	w.eventOf(ct.Name, corev1.EventTypeNormal, "Started", "Container "+ct.Name+" started")
	return w.adopt(ctx, ct, id, cfg)
}

// intendRun notes that a pod runs which is never to run twice. The machine may be rebooted, and
// nothing of it be left by which to tell.
func (w *worker) intendRun() error {
	if plan.Policy(w.pod) != corev1.RestartPolicyNever || w.record.Ran {
		return nil
	}
	r := w.record
	r.Ran = true
	if err := w.a.ledger.Write(w.uid, r); err != nil {
		return err
	}
	w.record = r
	return nil
}

// create makes an attempt and gives its id.
func (w *worker) create(ctx context.Context, ct *corev1.Container, cfg *runtimeapi.ContainerConfig) (string, error) {
	created, err := w.a.cfg.Runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: w.view.Box.GetId(), Config: cfg, SandboxConfig: w.sandboxConfig(w.view.Box.GetMetadata().GetAttempt()),
	})
	if err != nil {
		return "", w.notStarted(ct, holds.CreateError, err)
	}
	w.eventOf(ct.Name, corev1.EventTypeNormal, "Created", "Container "+ct.Name+" created")
	return created.GetContainerId(), nil
}

// notStarted tells what a runtime has said of an attempt that it has not made, or not started.
func (w *worker) notStarted(ct *corev1.Container, reason string, err error) error {
	text := w.wording(err)
	w.eventOf(ct.Name, corev1.EventTypeWarning, "Failed", "container "+ct.Name+": "+text+hostpath.Advice(err))
	w.a.stats.Container(w.pod, ct.Name, reason)
	return &holds.NotStarted{Reason: reason, Message: text}
}

// tellRestart tells, once for each end, that a container is started again, and after what.
func (w *worker) tellRestart(name string) {
	c := w.view.Containers[name]
	if c == nil || c.Restarted || view.StateOf(c.Now.GetState()) != plan.Exited {
		return
	}
	c.Restarted = true
	w.eventOf(name, corev1.EventTypeNormal, "Restarting", "Container "+name+" "+view.DescribeExit(c)+"; restarting it")
}

// attempt is the number of the next one, also for a container that was removed for a
// fresh start, or that the runtime has lost: it counts on, and writes into no log of another.
func (w *worker) attempt(ct *corev1.Container, a plan.Action) uint32 {
	if c := w.view.Containers[ct.Name]; c != nil && c.Now != nil {
		return max(a.Attempt, c.Now.GetMetadata().GetAttempt()+1)
	}
	_, told := w.shown.Get()
	return max(a.Attempt, status.Restarts(told, ct.Name), w.outfit.NextLog(ct.Name))
}

// adopt takes a container over that has just been started, so that its hook and
// probes begin now and not with the next look.
func (w *worker) adopt(ctx context.Context, ct *corev1.Container, id string, cfg *runtimeapi.ContainerConfig) error {
	s, err := w.view.Ask(ctx, id)
	if err != nil || s == nil {
		return err
	}
	c := w.view.Containers[ct.Name]
	if c == nil {
		c = &view.Container{}
		w.view.Containers[ct.Name] = c
	}
	if c.Now.GetId() != id {
		c.Renew(w.view.Box.GetId(), cfg.GetAnnotations())
	}
	w.view.TakeOver(ctx, c, s)
	w.link(ct.Name, c)
	return nil
}

// link has log shippers find the log of an attempt, whoever has started that. Nothing waits
// for it.
func (w *worker) link(name string, c *view.Container) {
	id := c.Now.GetId()
	if w.a.cfg.Links == "" || id == c.Linked || c.Now.GetLogPath() == "" {
		return
	}
	err := links.Make(w.a.cfg.Links, links.Container{Namespace: w.pod.Namespace, Pod: w.pod.Name, Name: name, ID: id, Log: c.Now.GetLogPath()})
	if err != nil {
		w.a.cfg.Log.Warn("log shippers cannot find the log of a container", "pod", w.name, "container", name, "error", err)
	}
	c.Linked = id
}

// Outfitter is a Room that has devices for containers, too.
type Outfitter interface {
	admission.Room
	// Outfit is what a container is given beside its spec, each time before it starts.
	// Unlike Admit it may wait for others.
	Outfit(ctx context.Context, pod *corev1.Pod, ct *corev1.Container) (podspec.Given, error)
	// Health is how the devices work that a container has; told is what was told of them last.
	Health(pod types.UID, container string, told []corev1.ResourceStatus) []corev1.ResourceStatus
}

func (w *worker) equip(ctx context.Context, ct *corev1.Container) (podspec.Given, error) {
	room, ok := w.a.cfg.Room.(Outfitter)
	if !ok {
		return podspec.Given{}, nil
	}
	return room.Outfit(ctx, w.pod, ct)
}

// configure makes the configuration of an attempt. It goes on counting crashes of the same
// program.
func (w *worker) configure(ctx context.Context, ct *corev1.Container, attempt uint32) (*runtimeapi.ContainerConfig, error) {
	record := podspec.Record{Hash: podspec.Hash(w.pod, ct)}
	if c := w.view.Containers[ct.Name]; c != nil && c.Hash == record.Hash {
		record.Crashes = c.Crashes
	}
	return w.outfit.Configure(ctx, outfit.Attempt{
		Container: ct, Number: attempt, Target: w.view.Target(ct.Name), Record: record,
		Sandbox: w.sandboxConfig(w.view.Box.GetMetadata().GetAttempt()),
	})
}
