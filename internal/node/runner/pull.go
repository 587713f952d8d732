package runner

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/manifest"
)

// Puller pulls one image and returns the reference to run it by.
type Puller interface {
	Pull(ctx context.Context, p Pull) (string, error)
}

// Pull says what to pull.
type Pull struct {
	Image string
	Auth  *Auth // nil: none
	// For are the pods that wait for it.
	For []*runtimeapi.PodSandboxMetadata
}

// Auth is a credential of a pull secret.
type Auth struct{ Username, Password, IdentityToken string }

// pulls at a time; the endpoint bounds its own downloads besides.
const parallelPulls = 3

// images maps what manifests call an image to what CreateContainer takes.
type images struct {
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

// pullPolicy is what was asked for, or the one that the image's tag implies.
func pullPolicy(image string, asked corev1.PullPolicy) corev1.PullPolicy {
	if asked != "" {
		return asked
	}
	name := image[strings.LastIndexByte(image, '/')+1:]
	if strings.Contains(name, "@") {
		return corev1.PullIfNotPresent
	}
	if _, tag, ok := strings.Cut(name, ":"); ok && tag != "latest" {
		return corev1.PullIfNotPresent
	}
	return corev1.PullAlways
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
		out = append(out, wanted{ct.Image, pullPolicy(ct.Image, ct.ImagePullPolicy), "imagePullPolicy", "container " + ct.Name})
		for _, m := range ct.VolumeMounts {
			mounted[m.Name] = true
		}
	}
	for _, v := range p.Spec.Volumes {
		if i := v.Image; i != nil && mounted[v.Name] {
			out = append(out, wanted{i.Reference, pullPolicy(i.Reference, i.PullPolicy), "pullPolicy", "volume " + v.Name})
		}
	}
	return out
}

type pullJob struct {
	wanted
	key   imageKey
	pod   *manifest.Pod // the first that wants it
	auths []*Auth
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
func (r *Runner) pullAll(ctx context.Context, plans []Plan) error {
	jobs, order := map[imageKey]*pullJob{}, []*pullJob{}
	for _, p := range plans {
		for _, w := range wantedBy(p.Pod.Pod) {
			key := keyOf(p.Pod.Pod, w.image)
			job := jobs[key]
			if job == nil {
				job = &pullJob{wanted: w, key: key, pod: p.Pod, auths: r.auths(p.Pod.Pod, w.image)}
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

func (r *Runner) pullOne(ctx context.Context, job *pullJob) error {
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
	ref, err := r.pullWith(ctx, job)
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

// pullWith tries every credential, and none at last.
func (r *Runner) pullWith(ctx context.Context, job *pullJob) (string, error) {
	var errs []error
	for _, auth := range job.auths {
		ref, err := r.cfg.Puller.Pull(ctx, Pull{job.image, auth, job.waits})
		if err == nil {
			return ref, nil
		}
		errs = append(errs, err)
	}
	if len(job.auths) > 0 {
		return "", errors.Join(errs...)
	}
	return r.cfg.Puller.Pull(ctx, Pull{Image: job.image, For: job.waits})
}

func (r *Runner) lookup(ctx context.Context, image string) (*runtimeapi.Image, error) {
	s, err := r.cfg.Endpoint.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: image}})
	if err != nil {
		return nil, fmt.Errorf("look for image %s: %w", image, err)
	}
	return s.GetImage(), nil
}

func (i *images) put(k imageKey, ref string, info *runtimeapi.Image) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.refs[k], i.info[k] = ref, info
}

func (i *images) get(k imageKey) (string, *runtimeapi.Image) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.refs[k], i.info[k]
}

// CRIPuller pulls by the CRI alone, which tells no progress and knows of one pod
// for each pull.
type CRIPuller struct {
	Images runtimeapi.ImageServiceClient
}

// Pull implements Puller.
func (p CRIPuller) Pull(ctx context.Context, pull Pull) (string, error) {
	req := &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: pull.Image}}
	if len(pull.For) > 0 {
		req.SandboxConfig = &runtimeapi.PodSandboxConfig{Metadata: pull.For[0]}
	}
	if auth := pull.Auth; auth != nil {
		req.Auth = &runtimeapi.AuthConfig{Username: auth.Username, Password: auth.Password, IdentityToken: auth.IdentityToken}
	}
	resp, err := p.Images.PullImage(ctx, req)
	if err != nil {
		return "", err
	}
	return resp.GetImageRef(), nil
}

// auths are the credentials for an image's registry in the pod's pull secrets.
func (r *Runner) auths(p *corev1.Pod, image string) []*Auth {
	var out []*Auth
	for _, ref := range p.Spec.ImagePullSecrets {
		s := r.cfg.Objects.Secret(p.Namespace, ref.Name)
		if s == nil {
			continue
		}
		var config struct {
			Auths map[string]dockerAuth `json:"auths"`
		}
		if data := s.Data[corev1.DockerConfigJsonKey]; data != nil {
			_ = json.Unmarshal(data, &config) // a broken one has no credentials, and the pull says so
		} else if data := s.Data[corev1.DockerConfigKey]; data != nil {
			_ = json.Unmarshal(data, &config.Auths)
		}
		for server, a := range config.Auths {
			if matchesRegistry(server, image) {
				out = append(out, a.config())
			}
		}
	}
	return out
}

type dockerAuth struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identitytoken"`
}

func (a dockerAuth) config() *Auth {
	out := &Auth{Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken}
	if plain, err := base64.StdEncoding.DecodeString(a.Auth); err == nil && out.Username == "" {
		out.Username, out.Password, _ = strings.Cut(string(plain), ":")
	}
	return out
}

// matchesRegistry compares a key of config.json with an image: its registry
// must be the same, and its path, if any, must start the image's.
func matchesRegistry(server, image string) bool {
	server = strings.TrimPrefix(strings.TrimPrefix(server, "https://"), "http://")
	host, path, _ := strings.Cut(server, "/")
	if path == "v1/" || path == "v2/" || path == "v1" || path == "v2" {
		path = ""
	}
	first, rest, ok := strings.Cut(image, "/")
	if !ok || (!strings.ContainsAny(first, ".:") && first != "localhost") {
		first, rest = "docker.io", image
	}
	if host == "index.docker.io" || host == "registry-1.docker.io" {
		host = "docker.io"
	}
	path = strings.TrimSuffix(path, "/")
	return host == first && (path == "" || rest == path || strings.HasPrefix(rest, path+"/"))
}
