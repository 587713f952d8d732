package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/node/images"
	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/view"
)

// The reasons for which a container waits, beside those of images and plans. They are
// the kubelet's.
const (
	configError = "CreateContainerConfigError"
	createError = "CreateContainerError"
	runError    = "RunContainerError"
)

// notStarted is why a container could not be started.
type notStarted struct {
	reason, message string
	until           time.Time // when that may have changed
	pause           time.Duration
}

func (e *notStarted) Error() string { return e.reason + ": " + e.message }

// start creates and starts an attempt at a container.
func (w *worker) start(ctx context.Context, ct *corev1.Container, a plan.Action) error {
	err := w.launch(ctx, ct, a)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var why *notStarted
	if !errors.As(err, &why) {
		delete(w.waits, ct.Name)
		return err
	}
	w.hold(ct.Name, why)
	return nil
}

// hold has what could not be started wait. Of a container the name is given; of the
// sandbox it is empty. The pause grows while it goes on failing.
func (w *worker) hold(name string, why *notStarted) {
	if before := w.waits[name]; before != nil {
		why.pause = before.pause
	}
	if why.until.IsZero() {
		why.pause = min(max(2*why.pause, firstRetry), lastHold)
		why.until = time.Now().Add(why.pause)
	}
	w.waits[name] = why
}

func (w *worker) launch(ctx context.Context, ct *corev1.Container, a plan.Action) error {
	cfg, err := w.configure(ctx, ct, w.attempt(ct, a))
	if err != nil {
		return err
	}
	release, err := w.a.starts.Take(ctx)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := call(ctx)
	defer cancel()
	w.tellRestart(ct.Name)
	created, err := w.a.cfg.Runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: w.view.Box.GetId(), Config: cfg, SandboxConfig: w.sandboxConfig(w.view.Box.GetMetadata().GetAttempt()),
	})
	if err != nil {
		w.event(corev1.EventTypeWarning, "Failed", "container "+ct.Name+": "+message(err)+hostpath.Advice(err))
		return &notStarted{reason: createError, message: message(err)}
	}
	w.view.Made[created.GetContainerId()] = true
	w.event(corev1.EventTypeNormal, "Created", "Container "+ct.Name+" created")
	if err := w.intendHook(ct, created.GetContainerId()); err != nil {
		return err
	}
	if _, err := w.a.cfg.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: created.GetContainerId()}); err != nil {
		w.event(corev1.EventTypeWarning, "Failed", "container "+ct.Name+": "+message(err)+hostpath.Advice(err))
		return &notStarted{reason: runError, message: message(err)}
	}
	w.event(corev1.EventTypeNormal, "Started", "Container "+ct.Name+" started")
	return w.adopt(ctx, ct, created.GetContainerId(), cfg)
}

// tellRestart tells, once for each end, that a container is started again, and after what.
func (w *worker) tellRestart(name string) {
	c := w.view.Containers[name]
	if c == nil || c.Restarted || view.StateOf(c.Now.GetState()) != plan.Exited {
		return
	}
	c.Restarted = true
	w.event(corev1.EventTypeNormal, "Restarting", "Container "+name+" "+view.DescribeExit(c)+"; restarting it")
}

// attempt is the number of the next one, also for a container that was removed for a
// fresh start.
func (w *worker) attempt(ct *corev1.Container, a plan.Action) uint32 {
	if c := w.view.Containers[ct.Name]; c != nil && c.Now != nil {
		return max(a.Attempt, c.Now.GetMetadata().GetAttempt()+1)
	}
	return a.Attempt
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
	c.Renew(w.view.Box.GetId(), cfg.GetAnnotations())
	w.view.TakeOver(ctx, c, s)
	return nil
}

// configure has the image here, and makes the configuration of an attempt.
func (w *worker) configure(ctx context.Context, ct *corev1.Container, attempt uint32) (*runtimeapi.ContainerConfig, error) {
	image, err := w.image(ctx, ct)
	if err != nil {
		return nil, err
	}
	if err := podspec.CheckNonRoot(w.pod, ct, image.Info); err != nil {
		return nil, w.misconfigured(ct, err)
	}
	mounts, err := w.mounts(ctx, ct, attempt)
	if err != nil {
		return nil, w.misconfigured(ct, err)
	}
	given, err := w.outfit(ctx, ct)
	if err != nil {
		return nil, w.misconfigured(ct, err)
	}
	record := podspec.Record{Hash: podspec.Hash(w.pod, ct)}
	if c := w.view.Containers[ct.Name]; c != nil && c.Hash == record.Hash { // else it is another program
		record.Crashes = c.Crashes
	}
	cfg, err := podspec.Container(ctx, w.spec, podspec.Attempt{
		Container: ct, Number: attempt, Image: image.Ref, Mounts: mounts, Given: given, Target: w.target(ct.Name), Record: record,
	})
	if err != nil {
		return nil, w.misconfigured(ct, err)
	}
	if err := logFolder(filepath.Join(w.spec.LogDir, cfg.GetLogPath())); err != nil {
		return nil, w.misconfigured(ct, fmt.Errorf("make the log folder: %w", err))
	}
	return cfg, nil
}

// target is the id of the container that an ephemeral one looks into.
func (w *worker) target(name string) string {
	for i := range w.pod.Spec.EphemeralContainers {
		e := &w.pod.Spec.EphemeralContainers[i]
		if c := w.view.Containers[e.TargetContainerName]; e.Name == name && c != nil {
			return c.Now.GetId()
		}
	}
	return ""
}

func (w *worker) misconfigured(ct *corev1.Container, err error) error {
	w.event(corev1.EventTypeWarning, "Failed", "container "+ct.Name+": "+err.Error()+hostpath.Advice(err))
	return &notStarted{reason: configError, message: err.Error()}
}

// image has the image of a container here, and those of the volumes that it mounts.
func (w *worker) image(ctx context.Context, ct *corev1.Container) (images.Image, error) {
	for _, m := range ct.VolumeMounts {
		for _, v := range w.pod.Spec.Volumes {
			if v.Name != m.Name || v.Image == nil {
				continue
			}
			got, err := w.ensure(ctx, v.Image.Reference, v.Image.PullPolicy)
			if err != nil {
				return got, err
			}
			w.pulled[v.Image.Reference] = got.Ref
		}
	}
	return w.ensure(ctx, ct.Image, ct.ImagePullPolicy)
}

func (w *worker) ensure(ctx context.Context, image string, policy corev1.PullPolicy) (images.Image, error) {
	asks := images.Request{
		Pod: w.pod, Image: image, Policy: policy, Secrets: w.pullSecrets(ctx), Sandbox: w.sandboxConfig(w.view.Box.GetMetadata().GetAttempt()),
		Pulling: func() { w.event(corev1.EventTypeNormal, "Pulling", "Pulling image "+image) },
	}
	var got images.Image
	var err error
	w.slowly(func() { got, err = w.a.cfg.Images.Ensure(ctx, asks) })
	if ctx.Err() != nil {
		return got, ctx.Err()
	}
	var failed *images.Error
	switch {
	case errors.As(err, &failed):
		w.event(corev1.EventTypeWarning, "Failed", failed.Message)
		return got, &notStarted{reason: failed.Reason, message: failed.Message, until: failed.Until}
	case err != nil:
		return got, &notStarted{reason: "ErrImagePull", message: err.Error()}
	case got.Pulled:
		w.event(corev1.EventTypeNormal, "Pulled", fmt.Sprintf("Image %s pulled in %s (%s including waiting). Image size: %d bytes.",
			image, got.Took.Round(time.Millisecond), (got.Waited+got.Took).Round(time.Millisecond), got.Info.GetSize()))
	default:
		w.event(corev1.EventTypeNormal, "Pulled", "Image "+image+" is already present on the node")
	}
	return got, nil
}

// pullSecrets are those that can be had: the image may be here, or need none.
func (w *worker) pullSecrets(ctx context.Context) []*corev1.Secret {
	var out []*corev1.Secret
	var errs []error
	for _, ref := range w.pod.Spec.ImagePullSecrets {
		s, err := w.a.cfg.Objects.Secret(ctx, w.pod.Namespace, ref.Name)
		switch {
		case err != nil:
			errs = append(errs, err)
		case s == nil:
			errs = append(errs, fmt.Errorf("there is no Secret %s", ref.Name))
		default:
			out = append(out, s)
		}
	}
	if err := errors.Join(errs...); err != nil && ctx.Err() == nil {
		w.event(corev1.EventTypeWarning, "FailedToRetrieveImagePullSecret", "The image may not be pulled without all pull secrets: "+message(err))
	}
	return out
}
