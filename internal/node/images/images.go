package images

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Config is what a Manager works with. Only Client is required.
type Config struct {
	Client      runtimeapi.ImageServiceClient
	Puller      Puller      // nil: by the CRI
	Credentials Credentials // those of the node; nil: none
	// Parallel is how many pulls are under way at a time; 0 means any number. Who
	// comes first is served first.
	Parallel int
	Rate     Rate
	// Records is the folder in which it is kept by which credentials images were
	// pulled; empty means that a restart forgets it.
	Records   string
	Verify    Verification
	Allowlist []string // repositories, for NeverVerifyAllowlistedImages
	// Warn tells by an event of the node what is wrong with records, once as long as it is
	// the same. It must not wait.
	Warn func(reason, message string)
	Log  *slog.Logger
}

// Rate bounds how many pulls begin: so many a second, and as many at once as Burst. The zero
// value is any number.
type Rate struct {
	PerSecond int
	Burst     int // at least 1
}

// Credentials are what a node itself knows of registries, such as by plugins.
type Credentials interface {
	// Lookup has the credentials for an image of a pod, best first. An error
	// comes with those that were found in spite of it.
	Lookup(ctx context.Context, image string, pod *corev1.Pod) ([]Credential, error)
}

// Request is a pod's need of an image.
type Request struct {
	Pod     *corev1.Pod
	Image   string // as the pod has it
	Policy  corev1.PullPolicy
	Secrets []*corev1.Secret // the pod's pull secrets
	Sandbox *runtimeapi.PodSandboxConfig
	// Pulling is called before the image is pulled, or waited for; may be nil.
	Pulling func()
}

// Image is an image that is present.
type Image struct {
	Ref    string // what CreateContainer takes
	Info   *runtimeapi.Image
	Pulled bool
	Took   time.Duration // of the pull itself
	Waited time.Duration // for others to be pulled first
}

// Manager has images present. Its methods may be called at the same time.
type Manager struct {
	cfg      Config
	slots    *semaphore.Weighted     // nil: no limit
	rate     flowcontrol.RateLimiter // nil: none
	records  *records
	failures failures
	stats    *metrics

	mu      sync.Mutex
	flights map[flightKey]*flight
	needed  map[string]time.Time // by the id of the image
}

// New makes a Manager. It fails if the folder of records cannot be read.
func New(c Config) (*Manager, error) {
	if c.Puller == nil {
		c.Puller = CRIPuller{c.Client}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Warn == nil {
		c.Warn = func(string, string) {}
	}
	switch c.Verify {
	case "":
		c.Verify = NeverVerifyPreloadedImages
	case NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages, AlwaysVerify:
	default:
		return nil, fmt.Errorf("verification of pull credentials is %q; it may be %s, %s, %s or %s", c.Verify,
			NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages, AlwaysVerify)
	}
	r, err := openRecords(c)
	if err != nil {
		return nil, err
	}
	m := &Manager{
		cfg: c, records: r, failures: failures{last: map[attempt]*failure{}}, stats: newMetrics(),
		flights: map[flightKey]*flight{}, needed: map[string]time.Time{},
	}
	if c.Rate.PerSecond > 0 {
		m.rate = flowcontrol.NewTokenBucketRateLimiter(float32(c.Rate.PerSecond), max(c.Rate.Burst, 1))
	}
	if c.Parallel > 0 {
		m.slots = semaphore.NewWeighted(int64(c.Parallel))
	}
	return m, nil
}

// Ensure returns when the image is present and the pod may use it. The error is
// an *Error, unless ctx has ended.
func (m *Manager) Ensure(ctx context.Context, r Request) (Image, error) {
	n, err := parseName(r.Image)
	if err != nil {
		return Image{}, &Error{Reason: InvalidImageName, Message: err.Error(), cause: err}
	}
	try := attempt{string(r.Pod.UID), n.full}
	img, err := m.ensure(ctx, r, n)
	var failed *Error
	switch {
	case err == nil:
		m.failures.forget(try)
		m.mu.Lock()
		m.needed[img.Info.GetId()] = time.Now()
		m.mu.Unlock()
	case ctx.Err() != nil:
		return Image{}, fmt.Errorf("wait for image %s: %w", r.Image, context.Cause(ctx))
	case errors.As(err, &failed) && failed.Reason != ImagePullBackOff:
		return Image{}, m.failures.add(try, failed)
	}
	return img, err
}

func (m *Manager) ensure(ctx context.Context, r Request, n name) (Image, error) {
	policy := PullPolicy(r.Image, r.Policy)
	if policy != corev1.PullAlways {
		img, err := m.present(ctx, r, n)
		if err != nil || img.Info != nil {
			return img, err
		}
	}
	if policy == corev1.PullNever {
		return Image{}, &Error{Reason: ErrImageNeverPull, Message: fmt.Sprintf(
			"image %s is not on this node, or was pulled with credentials that the pod does not have, and its pull policy is Never; import it, or allow the pull", r.Image)}
	}
	if last := m.failures.holds(attempt{string(r.Pod.UID), n.full}); last != nil {
		return Image{}, &Error{
			Reason: ImagePullBackOff, Message: fmt.Sprintf("Back-off pulling image %q: %s", r.Image, last.Error),
			Until: last.Until, cause: last.cause,
		}
	}
	if r.Pulling != nil {
		r.Pulling()
	}
	credentials, doubt := m.credentials(ctx, r)
	began := time.Now()
	img, by, err := m.share(ctx, r, n, credentials)
	if failed := (*Error)(nil); errors.As(err, &failed) {
		out := &Error{Reason: failed.Reason, Message: failed.Message, cause: failed.cause}
		if doubt != nil { // by what was left out the pull could have worked
			out.Message, out.cause = out.Message+"; "+doubt.Error(), errors.Join(out.cause, doubt)
		}
		if policy != corev1.PullAlways { // else it was looked at before
			return Image{}, out
		}
		if here, err := m.present(ctx, r, n); err == nil && here.Info != nil {
			out.Message += "; the image is on this node already, and imagePullPolicy: IfNotPresent would use it (without a policy, one with the tag latest, or with none, is always pulled)"
		}
		return Image{}, out
	}
	if err != nil {
		return Image{}, err
	}
	m.stats.pulled(img.Info.GetSize(), began)
	m.records.add(n, img.Info.GetId(), by)
	return img, nil
}

// present is the image if it is here and the pod may have it, and none if it
// has to be pulled.
func (m *Manager) present(ctx context.Context, r Request, n name) (Image, error) {
	info, err := m.status(ctx, n.asked, r.Pod.GetAnnotations())
	if err != nil {
		return Image{}, err
	}
	if info == nil || !m.records.open(n, info) && !m.granted(ctx, r, n, info.GetId()) {
		return Image{}, nil
	}
	return Image{Ref: info.GetId(), Info: info}, nil
}

// granted asks the node for credentials only where those of the pod's secrets
// do not do.
func (m *Manager) granted(ctx context.Context, r Request, n name, id string) bool {
	var k Keyring
	_ = k.AddSecrets(r.Secrets) // the pull that follows tells of it
	found := k.Lookup(n.full)
	if !m.records.grants(n, id, found) {
		if m.cfg.Credentials == nil {
			return false
		}
		found, _ = m.cfg.Credentials.Lookup(ctx, n.full, r.Pod)
		if !m.records.grants(n, id, found) {
			return false
		}
	}
	return true
}

func (m *Manager) status(ctx context.Context, image string, annotations map[string]string) (*runtimeapi.Image, error) {
	s, err := m.cfg.Client.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: image, Annotations: annotations}})
	if err != nil {
		return nil, &Error{Reason: ImageInspectError, Message: fmt.Sprintf("look for image %s: %s", image, describe(err)), cause: err}
	}
	return s.GetImage(), nil
}

// credentials are those of the pod's secrets, then those of the node. The error
// tells of some that could not be had.
func (m *Manager) credentials(ctx context.Context, r Request) ([]Credential, error) {
	var k Keyring
	doubt := k.AddSecrets(r.Secrets)
	out := k.Lookup(r.Image)
	if m.cfg.Credentials == nil {
		return out, doubt
	}
	more, err := m.cfg.Credentials.Lookup(ctx, r.Image, r.Pod)
	known := map[Auth]bool{}
	for _, c := range out {
		known[c.Auth] = true
	}
	for _, c := range more {
		if !known[c.Auth] {
			out = append(out, c)
		}
	}
	return out, errors.Join(doubt, err)
}

// LastNeeded is when a pod last asked for an image, by its id; zero if never.
func (m *Manager) LastNeeded(id string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.needed[id]
}

// Prune forgets images that are not here any more. present are the ids of all
// that are, in a list that was asked for then.
func (m *Manager) Prune(present []string, asked time.Time) {
	keep := map[string]bool{}
	for _, id := range present {
		keep[id] = true
	}
	m.records.prune(keep, asked)
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, at := range m.needed {
		if !keep[id] && at.Before(asked) {
			delete(m.needed, id)
		}
	}
}
