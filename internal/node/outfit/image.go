package outfit

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/node/errtext"
	"fairlead.run/internal/node/holds"
	"fairlead.run/internal/node/images"
)

// image has the image of a container here, and those of the volumes that it mounts.
func (p *Pod) image(ctx context.Context, a Attempt) (images.Image, error) {
	for _, m := range a.Container.VolumeMounts {
		for _, v := range p.Spec.Pod.Spec.Volumes {
			if v.Name != m.Name || v.Image == nil {
				continue
			}
			got, err := p.ensure(ctx, a.Container.Name, images.Request{Image: v.Image.Reference, Policy: v.Image.PullPolicy, Sandbox: a.Sandbox})
			if err != nil {
				return got, err
			}
			p.pulled[v.Image.Reference] = got.Ref
		}
	}
	return p.ensure(ctx, a.Container.Name, images.Request{Image: a.Container.Image, Policy: a.Container.ImagePullPolicy, Sandbox: a.Sandbox})
}

// ensure has an image here for a container, and tells how that goes.
func (p *Pod) ensure(ctx context.Context, container string, asks images.Request) (images.Image, error) {
	asks.Pod, asks.Secrets = p.Spec.Pod, p.pullSecrets(ctx, container)
	asks.Pulling = func() { p.Event(container, corev1.EventTypeNormal, "Pulling", "Pulling image "+asks.Image) }
	var got images.Image
	var err error
	p.Slowly(func() { got, err = p.Images.Ensure(ctx, asks) })
	if ctx.Err() != nil {
		return got, ctx.Err()
	}
	var failed *images.Error
	switch {
	case errors.As(err, &failed):
		text := p.Reworded(failed.Message) + hostpath.Advice(failed)
		p.Event(container, corev1.EventTypeWarning, "Failed", text)
		return got, &holds.NotStarted{Reason: failed.Reason, Message: text, Until: failed.Until}
	case err != nil:
		return got, &holds.NotStarted{Reason: "ErrImagePull", Message: p.Reworded(errtext.Full(err)) + hostpath.Advice(err)}
	case got.Pulled:
		p.Event(container, corev1.EventTypeNormal, "Pulled", fmt.Sprintf("Image %s pulled in %s (%s including waiting). Image size: %d bytes.",
			asks.Image, got.Took.Round(time.Millisecond), (got.Waited+got.Took).Round(time.Millisecond), got.Info.GetSize()))
	default:
		p.Event(container, corev1.EventTypeNormal, "Pulled", "Image "+asks.Image+" is already present on the node")
	}
	return got, nil
}

// pullSecrets are those that can be had: the image may be here, or need none.
func (p *Pod) pullSecrets(ctx context.Context, container string) []*corev1.Secret {
	var out []*corev1.Secret
	var errs []error
	for _, ref := range p.Spec.Pod.Spec.ImagePullSecrets {
		s, err := p.Spec.Objects.Secret(ctx, p.Spec.Pod.Namespace, ref.Name)
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
		p.Event(container, corev1.EventTypeWarning, "FailedToRetrieveImagePullSecret", "The image may not be pulled without all pull secrets: "+p.Reworded(errtext.Full(err)))
	}
	return out
}
