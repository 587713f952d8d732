package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/node/cluster/membership"
	"fairlead.run/internal/node/cluster/mirror"
	"fairlead.run/internal/node/cluster/nodestatus"
	"fairlead.run/internal/node/priority"
	"fairlead.run/test/apiserver"
)

// One of the handlers waits until a time that all bubbles would share.
func init() { utilruntime.ErrorHandlers = nil }

var (
	pods      = apiserver.Resource{Path: "api/v1/pods", Kind: "Pod", Namespaced: true}
	nodes     = apiserver.Resource{Path: "api/v1/nodes", Kind: "Node"}
	resources = []apiserver.Resource{
		pods, nodes,
		{Path: "api/v1/events", Kind: "Event", Namespaced: true},
		{Path: "apis/storage.k8s.io/v1/csinodes", Kind: "CSINode"},
		{Path: "api/v1/configmaps", Kind: "ConfigMap", Namespaced: true},
		{Path: "api/v1/secrets", Kind: "Secret", Namespaced: true},
		{Path: "api/v1/services", Kind: "Service", Namespaced: true},
		{Path: "apis/node.k8s.io/v1/runtimeclasses", Kind: "RuntimeClass"},
		{Path: "apis/coordination.k8s.io/v1/leases", Kind: "Lease", Namespaced: true},
	}
)

type rig struct {
	*apiserver.Server
	c *Cluster
	t *testing.T

	mu   sync.Mutex
	told [][]string
}

// newRig has a node that is not started yet.
func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{Server: apiserver.InMemory(t, resources...), t: t}
	client, err := cluster.NewClient(r.Config())
	if err != nil {
		t.Fatal(err)
	}
	r.c = New(Config{
		Client: client, Registration: membership.Registration{Name: "n", Hostname: "n"},
		Said:    func(context.Context) membership.Said { return membership.Said{Facts: nodestatus.Facts{Port: 10250}} },
		Pods:    r.tell,
		Changed: func([]types.UID) {}, Log: slog.New(slog.DiscardHandler),
	})
	return r
}

func (r *rig) start() {
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(r.t.Context())
	running.Go(func() {
		if err := r.c.Run(ctx); err != nil {
			r.t.Error(err)
		}
	})
	r.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

func (r *rig) tell(pods []*corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := []string{}
	for _, p := range pods {
		names = append(names, p.Name)
	}
	r.told = append(r.told, names)
}

// last is the set that was told last, and how often one was.
func (r *rig) last() ([]string, int) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.told) == 0 {
		return nil, 0
	}
	return r.told[len(r.told)-1], len(r.told)
}

func (r *rig) pod(name string) *corev1.Pod {
	r.t.Helper()
	had := r.Get(pods, "default/"+name)
	if had == nil {
		return nil
	}
	text, err := json.Marshal(had)
	if err != nil {
		r.t.Fatal(err)
	}
	out := &corev1.Pod{}
	if err := json.Unmarshal(text, out); err != nil {
		r.t.Fatal(err)
	}
	return out
}

func on(node, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}, Spec: corev1.PodSpec{NodeName: node}}
}

func TestNothingIsToldBeforeTheListHasCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Put(pods, on("n", "a"))
		r.Put(pods, on("other", "b"))
		r.FailWith(func(apiserver.Call) int { return http.StatusServiceUnavailable })
		r.start()
		time.Sleep(10 * time.Minute)
		if set, n := r.last(); n != 0 {
			t.Fatalf("told %v while the API server is away", set)
		}
		r.FailWith(nil)
		time.Sleep(30 * time.Second)
		if set, n := r.last(); n == 0 || !slices.Equal(set, []string{"a"}) {
			t.Fatalf("told %v, want a", set)
		}
		if r.Get(nodes, "n") == nil {
			t.Error("the node is not registered")
		}
		// The API server goes away again: what is known stays.
		r.FailWith(func(apiserver.Call) int { return http.StatusServiceUnavailable })
		_, before := r.last()
		time.Sleep(15 * time.Minute)
		if set, n := r.last(); n != before {
			t.Errorf("told %v while the API server is away", set)
		}
		r.FailWith(nil)
		r.Put(pods, on("n", "c"))
		time.Sleep(30 * time.Second)
		if set, _ := r.last(); !slices.Equal(set, []string{"a", "c"}) {
			t.Errorf("told %v, want a and c", set)
		}
	})
}

func TestAnEmptyNodeIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		if set, n := r.last(); n == 0 || len(set) != 0 {
			t.Errorf("told %v, %d times", set, n)
		}
	})
}

// TestTrouble is told of the node and of pods, unless it is that the API server is away.
func TestTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		warn := r.c.warner("FailedMirrorPod")
		warn(&url.Error{Op: "Post", URL: "https://api", Err: errors.New("connection refused")})
		warn(errors.New("a static pod is not shown"))
		r.c.tokenRefused(on("n", "a"), errors.New("refused"))
		synctest.Wait()
		var said []string
		for _, o := range r.All(apiserver.Resource{Path: "api/v1/events", Kind: "Event", Namespaced: true}) {
			said = append(said, fmt.Sprint(o["reason"], ": ", o["message"]))
		}
		slices.Sort(said)
		if len(said) != 2 || said[0] != "FailedMirrorPod: a static pod is not shown" || !strings.HasPrefix(said[1], "FailedTokenRenewal: The pod gets no new token of its service account") || !strings.HasSuffix(said[1], ": refused") {
			t.Errorf("events %q", said)
		}
	})
}

func TestAPodsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		p := on("n", "a")
		p.Spec.Containers = []corev1.Container{{EnvFrom: []corev1.EnvFromSource{{
			ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}},
		}}}}
		r.Put(pods, p)
		synctest.Wait()
		if n := r.Count(func(c apiserver.Call) bool { return c.Resource == "configmaps" }); n == 0 {
			t.Error("what the pod refers to is not read")
		}
		r.c.Report(r.pod("a"), &corev1.PodStatus{Phase: corev1.PodRunning})
		r.c.ContainerEvent(r.pod("a"), ContainerEvent{Path: "spec.containers{c}", Kind: corev1.EventTypeNormal, Reason: "Started", Message: "Started container c"})
		synctest.Wait()
		if got := r.pod("a"); got.Status.Phase != corev1.PodRunning {
			t.Errorf("the status is %+v", got.Status)
		}
		if n := r.Count(func(c apiserver.Call) bool { return c.Resource == "events" && c.Verb == "create" }); n != 1 {
			t.Errorf("there are %d events", n)
		}
		now := metav1.Now()
		p = r.pod("a")
		p.DeletionTimestamp = &now
		r.Put(pods, p)
		if set, _ := r.last(); !slices.Equal(set, []string{"a"}) {
			t.Errorf("told %v; a pod that is being deleted is there until it is gone", set)
		}
		r.c.Gone(p)
		if set, _ := r.last(); len(set) != 0 || r.pod("a") != nil {
			t.Errorf("told %v, and the pod is %v", set, r.pod("a"))
		}
		if len(r.c.held) != 0 {
			t.Errorf("still held: %v", r.c.held)
		}
	})
}

func TestAStaticPodIsSeenByItsMirror(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		static := on("", "web-n")
		static.Annotations = map[string]string{mirror.AnnotationHash: "h1", mirror.AnnotationSource: "file"}
		r.c.Report(static, &corev1.PodStatus{Phase: corev1.PodRunning})
		r.c.Static([]*corev1.Pod{static})
		set, _ := r.last()
		if got := r.pod("web-n"); got == nil || got.Status.Phase != corev1.PodRunning || got.UID == static.UID || len(set) != 0 {
			t.Fatalf("the mirror is %+v, and told are %v", got, set)
		}
		r.c.Event(static, corev1.EventTypeWarning, "BackOff", "x")
		synctest.Wait()
		text, err := json.Marshal(r.pod("web-n").OwnerReferences)
		if err != nil || !strings.Contains(string(text), `"kind":"Node"`) {
			t.Errorf("its owners are %s, %v", text, err)
		}
		// Deleted by hand: another mirror, with the status.
		r.Delete(pods, "default/web-n")
		synctest.Wait()
		if got := r.pod("web-n"); got == nil || got.Status.Phase != corev1.PodRunning {
			t.Errorf("the next mirror is %+v", got)
		}
		r.c.Static(nil)
		r.c.Gone(static)
		synctest.Wait()
		if got := r.pod("web-n"); got != nil {
			t.Errorf("the mirror stays: %+v", got)
		}
	})
}

// TestClaimsToBeStatic takes no pod of the API server for a static one, whatever its
// annotations say: its status is written, and it goes when it was deleted.
func TestClaimsToBeStatic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := on("n", "a")
		p.Annotations = map[string]string{"kubernetes.io/config.source": "file", "note": "kept"}
		r.Put(pods, p)
		r.start()
		r.last()
		got := r.c.pods.List()
		if len(got) != 1 || priority.Static(got[0]) || priority.Critical(got[0]) || got[0].Annotations["note"] != "kept" {
			t.Fatalf("%+v", got)
		}
		r.c.Report(got[0], &corev1.PodStatus{Phase: corev1.PodRunning})
		synctest.Wait()
		if got := r.pod("a"); got.Status.Phase != corev1.PodRunning {
			t.Errorf("its status is %+v", got.Status)
		}
	})
}

// TestMirrorStays leaves the annotations of a mirror as they are.
func TestMirrorStays(t *testing.T) {
	p := on("n", "a")
	p.Annotations = map[string]string{"kubernetes.io/config.source": "file", corev1.MirrorPodAnnotationKey: "x"}
	if got := taken(p).Annotations["kubernetes.io/config.source"]; got != "file" {
		t.Errorf("its source is %q", got)
	}
}
