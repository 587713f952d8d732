package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/errdefs"
	"fairlead.run/test/apiserver"
)

// One of the handlers waits until a time that all bubbles would share.
func init() { utilruntime.ErrorHandlers = nil }

var (
	configMaps = apiserver.Resource{Path: "api/v1/configmaps", Kind: "ConfigMap", Namespaced: true}
	secrets    = apiserver.Resource{Path: "api/v1/secrets", Kind: "Secret", Namespaced: true}
	services   = apiserver.Resource{Path: "api/v1/services", Kind: "Service", Namespaced: true}
	accounts   = apiserver.Resource{Path: "api/v1/serviceaccounts", Kind: "ServiceAccount", Namespaced: true}
	classes    = apiserver.Resource{Path: "apis/node.k8s.io/v1/runtimeclasses", Kind: "RuntimeClass"}
)

type rig struct {
	*apiserver.Server
	*Objects

	mu   sync.Mutex
	told []types.UID

	trouble []string // with tokens
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{Server: apiserver.InMemory(t, configMaps, secrets, services, accounts, classes)}
	client, err := cluster.NewClient(r.Config())
	if err != nil {
		t.Fatal(err)
	}
	r.Objects = New(client, func(pods []types.UID) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.told = append(r.told, pods...)
	}, func(p *corev1.Pod, err error) { r.trouble = append(r.trouble, p.Name+": "+err.Error()) }, slog.New(slog.DiscardHandler))
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	running.Go(func() { _ = r.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return r
}

func (r *rig) takeTold() []types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.told
	r.told = nil
	return out
}

func (r *rig) watches(resource string) int {
	return r.Count(func(c apiserver.Call) bool { return c.Verb == "watch" && c.Resource == resource })
}

func configMap(name, value string, immutable bool) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"k": value}}
	if immutable {
		c.Immutable = &immutable
	}
	return c
}

func pod(name string, configMaps ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{ServiceAccountName: "builder"}}
	for _, c := range configMaps {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: c}},
		}})
	}
	return p
}

func TestConfigMapsAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Put(configMaps, configMap("shared", "1", false))
		r.Put(configMaps, configMap("other", "1", false))
		r.Hold(pod("a", "shared"))
		r.Hold(pod("b", "shared", "missing"))
		r.Hold(pod("b", "shared", "missing"))
		got, err := r.ConfigMap(t.Context(), "default", "shared")
		if err != nil || got.Data["k"] != "1" {
			t.Fatalf("got %v, %v", got, err)
		}
		if _, err := r.ConfigMap(t.Context(), "default", "missing"); !apierrors.IsNotFound(err) {
			t.Errorf("one that does not exist gives %v", err)
		}
		synctest.Wait()
		if n := r.watches("configmaps"); n != 2 {
			t.Errorf("there are %d watches, want one for each", n)
		}
		r.takeTold()
		r.Put(configMaps, configMap("shared", "2", false))
		synctest.Wait()
		if told := r.takeTold(); !slices.Equal(told, []types.UID{"a", "b"}) {
			t.Errorf("the change is told to %v, want a and b", told)
		}
		if got, err := r.ConfigMap(t.Context(), "default", "shared"); err != nil || got.Data["k"] != "2" {
			t.Errorf("got %v, %v", got, err)
		}
		r.Put(configMaps, configMap("missing", "new", false))
		synctest.Wait()
		if told := r.takeTold(); !slices.Equal(told, []types.UID{"b"}) {
			t.Errorf("the change is told to %v, want b", told)
		}
		r.Release("a")
		r.Put(configMaps, configMap("shared", "3", false))
		synctest.Wait()
		if told := r.takeTold(); !slices.Equal(told, []types.UID{"b"}) {
			t.Errorf("the change is told to %v, want b", told)
		}
		r.Release("b")
		r.Put(configMaps, configMap("shared", "4", false))
		time.Sleep(time.Hour)
		if told := r.takeTold(); len(told) != 0 || len(r.configMaps.items) != 0 {
			t.Errorf("after the last pod a change is told to %v", told)
		}
	})
}

func TestImmutableIsReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Put(configMaps, configMap("fixed", "1", true))
		r.Hold(pod("a", "fixed"))
		if _, err := r.ConfigMap(t.Context(), "default", "fixed"); err != nil {
			t.Fatal(err)
		}
		before := r.watches("configmaps")
		time.Sleep(3 * time.Hour)
		if n := r.watches("configmaps") - before; n != 0 {
			t.Errorf("it is watched %d times more", n)
		}
		if got, err := r.ConfigMap(t.Context(), "default", "fixed"); err != nil || got.Data["k"] != "1" {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

// The API server hears of a pod later than the node: it is asked again soon, and
// the error says what it has said.
func TestForbiddenAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Put(configMaps, configMap("c", "1", false))
		r.FailWith(func(c apiserver.Call) int {
			if c.Resource == "configmaps" {
				return http.StatusForbidden
			}
			return 0
		})
		r.Hold(pod("a", "c"))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := r.ConfigMap(ctx, "default", "c")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "Forbidden") {
			t.Errorf("got %v", err)
		}
		r.FailWith(nil)
		begun := time.Now()
		if _, err := r.ConfigMap(t.Context(), "default", "c"); err != nil || time.Since(begun) > time.Second {
			t.Errorf("after %s: %v", time.Since(begun), err)
		}
	})
}

func TestServicesAndClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		if _, err := r.Services("web"); err != nil && !errors.Is(err, errdefs.ErrUnavailable) {
			t.Error(err)
		}
		for _, name := range []string{"default/kubernetes", "default/other", "web/db"} {
			ns, n, _ := strings.Cut(name, "/")
			r.Put(services, &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: n, Labels: map[string]string{"x": "y"}},
				Spec:       corev1.ServiceSpec{ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Name: "p", Port: 80, Protocol: "TCP"}}},
			})
		}
		synctest.Wait()
		got, err := r.Services("web")
		if err != nil || len(got) != 2 || got[0].Spec.Ports[0].Port != 80 || got[0].Spec.ClusterIP != "10.0.0.1" {
			t.Errorf("got %v, %v", got, err)
		}
		r.Put(classes, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "gvisor"}, Handler: "runsc"})
		if c, err := r.Class(t.Context(), "gvisor"); err != nil || c.Handler != "runsc" {
			t.Errorf("got %v, %v", c, err)
		}
		if _, err := r.Class(t.Context(), "none"); !apierrors.IsNotFound(err) {
			t.Errorf("a class that does not exist gives %v", err)
		}
	})
}

func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var asked atomic.Int32
		var ahead atomic.Int64 // of the API server's clock
		var failing, away atomic.Bool
		r.Intercept(func(c apiserver.Call, w http.ResponseWriter, req *http.Request) bool {
			if c.Subresource != "token" {
				return false
			}
			if away.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
				return true
			}
			if failing.Load() {
				w.WriteHeader(http.StatusForbidden)
				return true
			}
			var want authenticationv1.TokenRequest
			if err := json.NewDecoder(req.Body).Decode(&want); err != nil || want.Spec.BoundObjectRef.UID != "a" && want.Spec.BoundObjectRef.UID != "b" || c.Name != "builder" {
				t.Errorf("asked for %+v of %s, %v", want, c.Name, err)
			}
			want.Status = authenticationv1.TokenRequestStatus{Token: fmt.Sprintf("t%d", asked.Add(1)), ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour + time.Duration(ahead.Load())))}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(want)
			return true
		})
		want := func(a Account, token string) {
			t.Helper()
			if got, _, err := r.Token(t.Context(), a); err != nil || got.Token != token {
				t.Errorf("got %v, %v; want %s", got, err, token)
			}
		}
		// When to ask again does not depend on what this machine's clock makes of the time in
		// the token, is no later than after a day, and is later than now.
		next := func(a Account, in time.Duration) {
			t.Helper()
			if _, again, err := r.Token(t.Context(), a); err != nil || time.Until(again) != in {
				t.Errorf("to be asked for again in %s, %v; want %s", time.Until(again), err, in)
			}
		}
		a := Account{Pod: pod("a"), Seconds: 3600}
		want(a, "t1")
		next(a, 48*time.Minute)
		time.Sleep(47 * time.Minute)
		want(a, "t1")
		want(Account{Pod: pod("a"), Seconds: 3600, Audiences: []string{"vault"}}, "t2")
		want(Account{Pod: pod("b"), Seconds: 3600}, "t3")
		time.Sleep(time.Minute)
		want(a, "t4") // after four fifths
		failing.Store(true)
		time.Sleep(50 * time.Minute)
		want(a, "t4") // still holds
		next(a, time.Minute)
		if len(r.trouble) != 1 || !strings.HasPrefix(r.trouble[0], "a: the token that the pod has holds until ") {
			t.Errorf("told %q, want it once", r.trouble)
		}
		away.Store(true)
		want(a, "t4")
		away.Store(false)
		time.Sleep(10 * time.Minute)
		if got, _, err := r.Token(t.Context(), a); err == nil {
			t.Errorf("a token that has ended is given: %v", got)
		}
		failing.Store(false)
		want(a, "t5")
		r.Release("a")
		want(a, "t6")
		ahead.Store(int64(-48 * time.Hour))
		next(Account{Pod: pod("a"), Seconds: 3 * 3600}, 144*time.Minute)
		next(Account{Pod: pod("a"), Seconds: 7 * 24 * 3600}, 24*time.Hour)
		r.Release("a")
		want(a, "t9")
		if len(r.tokens.cached) != 2 {
			t.Errorf("%d tokens are kept, want those of a and b", len(r.tokens.cached))
		}
	})
}
