package foreground

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/images"
	"fairlead.run/internal/node/manifest"
)

// pulls at a time; the endpoint bounds its own downloads besides.
const parallelPulls = 3

// refs maps what manifests call an image to what CreateContainer takes. It is the Images of
// the agent.
type refs struct {
	mu   sync.Mutex
	refs map[imageKey]string
	info map[imageKey]*runtimeapi.Image
}

type imageKey struct{ image, namespace, secrets string }

func keyOf(p *corev1.Pod, image string) imageKey {
	var secrets []string
	for _, s := range p.Spec.ImagePullSecrets {
		secrets = append(secrets, s.Name)
	}
	if len(secrets) == 0 {
		return imageKey{image: image}
	}
	return imageKey{image, p.Namespace, strings.Join(secrets, ",")}
}

func allContainers(p *corev1.Pod) []*corev1.Container {
	var out []*corev1.Container
	for i := range p.Spec.InitContainers {
		out = append(out, &p.Spec.InitContainers[i])
	}
	for i := range p.Spec.Containers {
		out = append(out, &p.Spec.Containers[i])
	}
	return out
}

// wanted is an image that a pod needs.
type wanted struct {
	image  string
	policy corev1.PullPolicy
	field  string // that says the policy
	by     string // "container web"
}

// wantedBy are the images of the pod's containers, and of the volumes that they
// mount.
func wantedBy(p *corev1.Pod) []wanted {
	var out []wanted
	mounted := map[string]bool{}
	for _, ct := range allContainers(p) {
		out = append(out, wanted{ct.Image, images.PullPolicy(ct.Image, ct.ImagePullPolicy), "imagePullPolicy", "container " + ct.Name})
		for _, m := range ct.VolumeMounts {
			mounted[m.Name] = true
		}
	}
	for _, v := range p.Spec.Volumes {
		if i := v.Image; i != nil && mounted[v.Name] {
			out = append(out, wanted{i.Reference, images.PullPolicy(i.Reference, i.PullPolicy), "pullPolicy", "volume " + v.Name})
		}
	}
	return out
}

type pullJob struct {
	wanted
	key   imageKey
	pod   *manifest.Pod // the first that wants it
	creds []images.Credential
	waits []*runtimeapi.PodSandboxMetadata
}

// waitedBy adds a pod, which may want the image for several containers.
func (j *pullJob) waitedBy(p Plan) {
	if n := len(j.waits); n == 0 || j.waits[n-1].Uid != string(p.UID) {
		j.waits = append(j.waits, &runtimeapi.PodSandboxMetadata{Name: p.Pod.Name, Namespace: p.Pod.Namespace, Uid: string(p.UID)})
	}
}

// pullAll gets every image once. Of several policies for one image the one
// that asks for most wins.
func (r *Run) pullAll(ctx context.Context, plans []Plan) error {
	jobs, order := map[imageKey]*pullJob{}, []*pullJob{}
	for _, p := range plans {
		for _, w := range wantedBy(p.Pod.Pod) {
			key := keyOf(p.Pod.Pod, w.image)
			job := jobs[key]
			if job == nil {
				job = &pullJob{wanted: w, key: key, pod: p.Pod, creds: r.credentials(p.Pod.Pod, w.image)}
				jobs[key], order = job, append(order, job)
			}
			job.waitedBy(p)
			if w.policy == corev1.PullAlways || (w.policy == corev1.PullIfNotPresent && job.policy == corev1.PullNever) {
				job.policy = w.policy
			}
		}
	}
	slots, errs := make(chan struct{}, parallelPulls), make([]error, len(order))
	var wg sync.WaitGroup
	for i, job := range order {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := r.pullOne(ctx, job); err != nil {
				errs[i] = fmt.Errorf("%s: %s: %w", job.pod.Origin, job.by, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (r *Run) pullOne(ctx context.Context, job *pullJob) error {
	image := job.image
	if job.policy != corev1.PullAlways {
		present, err := r.lookup(ctx, image)
		if err != nil {
			return err
		}
		if present != nil {
			r.images.put(job.key, present.GetId(), present)
			return nil
		}
		if job.policy == corev1.PullNever {
			return fmt.Errorf("image %s is not on this machine and %s is Never; import it with fairlead image import, or allow the pull: %w", image, job.field, errdefs.ErrNotFound)
		}
	}
	ref, _, err := images.Try(ctx, r.cfg.Puller, images.Pull{Image: job.image, For: job.waits}, job.creds)
	if err != nil {
		if present, lookupErr := r.lookup(ctx, image); lookupErr == nil && present != nil {
			err = fmt.Errorf("%w (a copy is on this machine; %s: IfNotPresent would use it)", err, job.field)
		}
		return pullFailed(image, err)
	}
	pulled, err := r.lookup(ctx, ref)
	if err != nil {
		return err
	}
	r.images.put(job.key, ref, pulled)
	return nil
}

// pullFailed names the image unless the runtime did so.
func pullFailed(image string, err error) error {
	if strings.Contains(err.Error(), image) {
		return err
	}
	return fmt.Errorf("pull image %s: %w", image, err)
}

func (r *Run) lookup(ctx context.Context, image string) (*runtimeapi.Image, error) {
	s, err := r.cfg.Endpoint.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: image}})
	if err != nil {
		return nil, fmt.Errorf("look for image %s: %w", image, err)
	}
	return s.GetImage(), nil
}

func (i *refs) put(k imageKey, ref string, info *runtimeapi.Image) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.refs[k], i.info[k] = ref, info
}

// Ensure implements outfit.Images: all images are here by the time that the agent runs.
func (i *refs) Ensure(_ context.Context, r images.Request) (images.Image, error) {
	k := keyOf(r.Pod, r.Image)
	i.mu.Lock()
	defer i.mu.Unlock()
	ref, ok := i.refs[k]
	if !ok {
		return images.Image{}, fmt.Errorf("image %s was not pulled", r.Image)
	}
	return images.Image{Ref: ref, Info: i.info[k]}, nil
}

// credentials are those in the pod's pull secrets that are for an image.
func (r *Run) credentials(p *corev1.Pod, image string) []images.Credential {
	var secrets []*corev1.Secret
	for _, ref := range p.Spec.ImagePullSecrets {
		if s := r.cfg.Objects.Secrets[manifest.Key{Namespace: p.Namespace, Name: ref.Name}]; s != nil {
			secrets = append(secrets, s)
		}
	}
	var ring images.Keyring
	_ = ring.AddSecrets(secrets) // a broken one has no credentials, and the pull says so
	return ring.Lookup(image)
}
