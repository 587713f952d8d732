package images

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// registry is an image service in memory, and what it pulls from.
type registry struct {
	runtimeapi.ImageServiceClient

	mu       sync.Mutex
	present  map[string]bool
	private  string        // the password that it wants
	slow     time.Duration // that a pull takes
	size     uint64        // of all images
	hang     map[string]bool
	fail     error // of pulls
	blind    error // of ImageStatus
	pulls    []string
	looks    int
	underWay int
	most     int
}

func (r *registry) ImageStatus(_ context.Context, in *runtimeapi.ImageStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ImageStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looks++
	image := strings.TrimPrefix(in.Image.Image, "id of ")
	if r.blind != nil || !r.present[image] {
		return &runtimeapi.ImageStatusResponse{}, r.blind
	}
	return &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Id: "id of " + image, RepoTags: []string{image}, Size: r.size}}, nil
}

func (r *registry) PullImage(ctx context.Context, in *runtimeapi.PullImageRequest, _ ...grpc.CallOption) (*runtimeapi.PullImageResponse, error) {
	image := in.Image.Image
	r.mu.Lock()
	r.pulls = append(r.pulls, strings.TrimSpace(in.SandboxConfig.GetMetadata().GetName()+" "+image+" "+in.Auth.GetPassword()))
	r.underWay++
	r.most = max(r.most, r.underWay)
	slow, hang := r.slow, r.hang[image]
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.underWay--
	}()
	if hang {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return nil, r.fail
	}
	if in.Auth.GetPassword() != r.private {
		return nil, status.Error(codes.Unknown, "denied: "+in.Auth.GetPassword())
	}
	r.present[image] = true
	return &runtimeapi.PullImageResponse{ImageRef: "id of " + image}, nil
}

// took is what was pulled since the last call.
func (r *registry) took() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.pulls
	r.pulls = nil
	return out
}

func newRegistry() *registry { return &registry{present: map[string]bool{}, hang: map[string]bool{}} }

func newManager(t *testing.T, c Config) *Manager {
	t.Helper()
	m, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// need is a pod's request.
func need(pod, image string, policy corev1.PullPolicy, secrets ...*corev1.Secret) Request {
	return Request{
		Pod:   &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: pod, UID: types.UID("uid of " + pod)}},
		Image: image, Policy: policy, Secrets: secrets,
	}
}

func password(secretName, uid, password string) *corev1.Secret {
	s := secret(secretName, corev1.DockerConfigJsonKey, `{"auths":{"docker.io":{"username":"u","password":"`+password+`"}}}`)
	s.UID = types.UID(uid)
	return s
}

// reason is the error's, and how long to wait.
func reason(t *testing.T, err error) (string, time.Duration) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("err = %v, want one of this package", err)
	}
	if e.Until.IsZero() {
		return e.Reason, 0
	}
	return e.Reason, time.Until(e.Until)
}

func TestPolicies(t *testing.T) {
	tests := []struct {
		policy  corev1.PullPolicy
		present bool
		pulls   []string
		looks   int
		reason  string
	}{
		{corev1.PullAlways, false, []string{"a i:1"}, 1, ""},
		{corev1.PullAlways, true, []string{"a i:1"}, 1, ""},
		{corev1.PullIfNotPresent, false, []string{"a i:1"}, 2, ""},
		{corev1.PullIfNotPresent, true, nil, 1, ""},
		{corev1.PullNever, true, nil, 1, ""},
		{corev1.PullNever, false, nil, 1, ErrImageNeverPull},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.policy, tt.present), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry()
				r.present["i:1"] = tt.present
				begun := 0
				req := need("a", "i:1", tt.policy)
				req.Pulling = func() { begun++ }
				img, err := newManager(t, Config{Client: r}).Ensure(t.Context(), req)
				if tt.reason != "" {
					if got, wait := reason(t, err); got != tt.reason || wait != firstDelay {
						t.Errorf("%v, again in %s", err, wait)
					}
				} else if err != nil || img.Ref != "id of i:1" || img.Info.GetId() != "id of i:1" || img.Pulled != (tt.pulls != nil) {
					t.Errorf("%+v, %v", img, err)
				}
				if pulls := r.took(); !slices.Equal(pulls, tt.pulls) || r.looks != tt.looks || begun != len(pulls) {
					t.Errorf("pulled %q, told of %d, looked %d times", pulls, begun, r.looks)
				}
			})
		})
	}
}

// TestHereAlready says of an image that is always pulled, and cannot be, that it is here.
func TestHereAlready(t *testing.T) {
	r := newRegistry()
	r.fail = status.Error(codes.Unavailable, "connection refused")
	r.present["localhost/app:latest"] = true
	m := newManager(t, Config{Client: r})
	for image, here := range map[string]bool{"localhost/app": true, "localhost/other": false} {
		_, err := m.Ensure(t.Context(), need("a "+image, image, ""))
		if err == nil || strings.Contains(err.Error(), "imagePullPolicy: IfNotPresent would use it") != here || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("%s: %v", image, err)
		}
	}
	if _, err := m.Ensure(t.Context(), need("b", "localhost/app", corev1.PullIfNotPresent)); err != nil {
		t.Error(err)
	}
	// One that is pulled if it is not here was looked for once.
	looks := r.looks
	if _, err := m.Ensure(t.Context(), need("c", "localhost/third", corev1.PullIfNotPresent)); err == nil || r.looks != looks+1 {
		t.Errorf("%v, after %d looks", err, r.looks-looks)
	}
}

func TestReasons(t *testing.T) {
	tests := []struct {
		image       string
		fail, blind error
		reason      string
		message     string
	}{
		{"No:1", nil, nil, InvalidImageName, `image name "No:1"`},
		{"i:1", nil, errors.New("broken pipe"), ImageInspectError, "look for image i:1: broken pipe"},
		{"i:1", status.Error(codes.Unknown, "no such host"), nil, ErrImagePull, "pull image i:1: no such host"},
		{"i:1", status.Error(codes.Unknown, "get i:1: no such host"), nil, ErrImagePull, "get i:1: no such host"},
		{"i:1", fmt.Errorf("by plugin: %w", status.Error(codes.Unknown, "i:1 x")), nil, ErrImagePull, "by plugin: i:1 x"},
		{"i:1", status.Error(codes.Unknown, "RegistryUnavailable: 503"), nil, RegistryUnavailable, "pull image i:1: the registry is unavailable: 503"},
		{"i:1", status.Error(codes.Unknown, "SignatureValidationFailed"), nil, SignatureValidationFailed, "pull image i:1: its signature is not valid"},
	}
	for _, tt := range tests {
		r := newRegistry()
		r.fail, r.blind = tt.fail, tt.blind
		_, err := newManager(t, Config{Client: r}).Ensure(t.Context(), need("a", tt.image, corev1.PullIfNotPresent))
		got, wait := reason(t, err)
		if got != tt.reason || !strings.Contains(err.Error(), tt.message) {
			t.Errorf("%v, want %s: %s", err, tt.reason, tt.message)
		}
		if (wait == 0) != (tt.reason == InvalidImageName) {
			t.Errorf("%v: again in %s", err, wait)
		}
	}
}

// Each credential is tried in turn, those of secrets before the node's, and
// none is tried without one.
func TestCredentials(t *testing.T) {
	r := newRegistry()
	r.private = "right"
	m := newManager(t, Config{Client: r, Credentials: static{{Auth: Auth{Password: "right"}}}})
	broken := secret("broken", corev1.DockerConfigJsonKey, "{")
	req := need("a", "i", "", password("one", "", "wrong"), broken, password("two", "", "worse"))
	if _, err := m.Ensure(t.Context(), req); err != nil {
		t.Error(err)
	}
	if got := r.took(); !slices.Equal(got, []string{"a i:latest wrong", "a i:latest worse", "a i:latest right"}) {
		t.Errorf("pulls: %q", got)
	}
	m = newManager(t, Config{Client: r, Credentials: static{}})
	_, err := m.Ensure(t.Context(), req)
	for _, part := range []string{"denied: wrong", "denied: worse", "pull secret ns/broken", "no answer"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %q", err, part)
		}
	}
}

// static is a node's credentials. With none it fails.
type static []Credential

func (s static) Lookup(context.Context, string, *corev1.Pod) ([]Credential, error) {
	if s == nil {
		return nil, nil
	}
	if len(s) == 0 {
		return nil, errors.New("plugin p: no answer")
	}
	return s, nil
}

func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		r.private = "nobody knows"
		m := newManager(t, Config{Client: r})
		try := func(pod, image string) (string, time.Duration) {
			_, err := m.Ensure(t.Context(), need(pod, image, corev1.PullAlways))
			return reason(t, err)
		}
		for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
			if got, wait := try("a", "i:1"); got != ErrImagePull || wait != want*time.Second {
				t.Fatalf("%s, again in %s, want %d s", got, wait, want)
			}
			time.Sleep(want*time.Second - 1)
			got, wait := try("a", "i:1")
			if got != ImagePullBackOff || wait != 1 {
				t.Fatalf("early: %s, again in %s", got, wait)
			}
			time.Sleep(time.Nanosecond)
		}
		if got, _ := try("a", "i:1"); got != ErrImagePull {
			t.Error(got)
		}
		for _, other := range [][2]string{{"b", "i:1"}, {"a", "i:2"}} {
			if got, wait := try(other[0], other[1]); got != ErrImagePull || wait != firstDelay {
				t.Errorf("%s is held back by another: %s, %s", other, got, wait)
			}
		}
		_, err := m.Ensure(t.Context(), need("a", "i:1", corev1.PullAlways))
		if want := `ImagePullBackOff: Back-off pulling image "i:1": ErrImagePull: pull image i:1: denied`; !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		// What is present needs no pull, so nothing holds it back; and then all is forgotten.
		r.present["i:1"] = true
		if _, err := m.Ensure(t.Context(), need("a", "i:1", corev1.PullIfNotPresent)); err != nil {
			t.Error(err)
		}
		if got, wait := try("a", "i:1"); got != ErrImagePull || wait != firstDelay {
			t.Errorf("after success: %s, %s", got, wait)
		}
		try("c", "i:1")
		time.Sleep(rest + 1)
		if got, wait := try("a", "i:1"); got != ErrImagePull || wait != firstDelay {
			t.Errorf("after a rest: %s, %s", got, wait)
		}
		if len(m.failures.last) != 1 {
			t.Errorf("%d failures are kept", len(m.failures.last))
		}
	})
}

// Two pods share a pull, also when the first of them goes, but not one with
// other credentials.
func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		r.slow = time.Minute
		m := newManager(t, Config{Client: r})
		first, leave := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() {
			if _, err := m.Ensure(first, need("a", "i:1", corev1.PullAlways)); !errors.Is(err, context.Canceled) {
				t.Errorf("the first: %v", err)
			}
		})
		synctest.Wait()
		for range 3 {
			done.Go(func() {
				img, err := m.Ensure(t.Context(), need("b", "docker.io/library/i:1", corev1.PullAlways))
				if err != nil || img.Took != time.Minute || img.Waited != 0 || !img.Pulled {
					t.Errorf("%+v, %v", img, err)
				}
			})
		}
		time.Sleep(time.Second)
		leave()
		done.Go(func() {
			if _, err := m.Ensure(t.Context(), need("c", "i:1", corev1.PullAlways, password("s", "", "p"))); err == nil {
				t.Error("a wrong password was never tried")
			}
		})
		done.Wait()
		if got := r.took(); !slices.Equal(got, []string{"a i:1", "c i:1 p"}) {
			t.Errorf("pulls: %q", got)
		}
	})
}

// A pull that everybody has left ends, and whoever comes then starts anew.
func TestLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		r.hang["i:1"] = true
		m := newManager(t, Config{Client: r, Parallel: 1})
		for _, pod := range []string{"a", "b"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if _, err := m.Ensure(ctx, need(pod, "i:1", corev1.PullAlways)); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			cancel()
			if r.underWay != 0 {
				t.Errorf("%d pulls go on without anybody", r.underWay)
			}
		}
		if got := r.took(); !slices.Equal(got, []string{"a i:1", "b i:1"}) {
			t.Errorf("pulls: %q", got)
		}
		if len(m.failures.last) != 0 || len(m.flights) != 0 {
			t.Errorf("left: %v, %v", m.failures.last, m.flights)
		}
	})
}

// Pulls wait in the order in which they came, and one that hangs takes one
// place and no more.
// TestRate begins as many pulls at once as it may, and the others each in its time.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		m := newManager(t, Config{Client: r, Rate: Rate{PerSecond: 1, Burst: 2}})
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				if _, err := m.Ensure(t.Context(), need(fmt.Sprint("p", i), fmt.Sprint("r.example/i", i, ":1"), corev1.PullAlways)); err != nil {
					t.Error(err)
				}
			})
		}
		for _, want := range []int{2, 1, 1, 1, 0} {
			time.Sleep(500 * time.Millisecond)
			synctest.Wait()
			if got := len(r.took()); got != want {
				t.Errorf("%d pulls began, want %d", got, want)
			}
			time.Sleep(500 * time.Millisecond)
		}
		all.Wait()
	})
}

func TestParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		r.slow, r.hang["hung:1"] = time.Second, true
		m := newManager(t, Config{Client: r, Parallel: 2})
		ctx, cancel := context.WithCancel(t.Context())
		var hung, done sync.WaitGroup
		hung.Go(func() { _, _ = m.Ensure(ctx, need("h", "hung:1", corev1.PullAlways)) })
		synctest.Wait()
		var want []string
		for i := range 10 {
			pod := fmt.Sprint("p", i)
			done.Go(func() {
				img, err := m.Ensure(t.Context(), need(pod, pod+":1", corev1.PullAlways))
				if err != nil || img.Waited != time.Duration(i)*time.Second {
					t.Errorf("%s waited %s, %v", pod, img.Waited, err)
				}
			})
			want = append(want, pod+" "+pod+":1")
			synctest.Wait()
		}
		// What is present does not wait.
		r.mu.Lock()
		r.present["here:1"] = true
		r.mu.Unlock()
		if _, err := m.Ensure(t.Context(), need("z", "here:1", corev1.PullIfNotPresent)); err != nil {
			t.Error(err)
		}
		done.Wait()
		if got := r.took()[1:]; !slices.Equal(got, want) || r.most != 2 {
			t.Errorf("pulls: %q, at most %d at a time", got, r.most)
		}
		cancel()
		hung.Wait()
	})
}

func TestLastNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		m := newManager(t, Config{Client: r})
		if _, err := m.Ensure(t.Context(), need("a", "i:1", "")); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		if got := m.LastNeeded("id of i:1"); got != now || !m.LastNeeded("another").IsZero() {
			t.Errorf("needed %s, now is %s", got, now)
		}
		m.Prune(nil, now) // a list from before it was there
		if m.LastNeeded("id of i:1").IsZero() {
			t.Error("forgotten, and it is new")
		}
		m.Prune([]string{"id of i:1"}, now.Add(1))
		if m.LastNeeded("id of i:1").IsZero() {
			t.Error("forgotten, and it is here")
		}
		m.Prune(nil, now.Add(1))
		if !m.LastNeeded("id of i:1").IsZero() {
			t.Error("not forgotten")
		}
	})
}
