package cluster

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/api/v1alpha1"
	"fairlead.run/test/apiserver"
)

var (
	classes    = apiserver.Resource{Path: "apis/node.k8s.io/v1/runtimeclasses", Kind: "RuntimeClass"}
	policies   = apiserver.Resource{Path: "apis/fairlead.run/v1alpha1/runtimeclasspolicies", Kind: "RuntimeClassPolicy"}
	namespaces = apiserver.Resource{Path: "api/v1/namespaces", Kind: "Namespace"}
	nodes      = apiserver.Resource{Path: "api/v1/nodes", Kind: "Node"}
	pods       = apiserver.Resource{Path: "api/v1/pods", Kind: "Pod", Namespaced: true}
)

func class(name string) *nodev1.RuntimeClass {
	return &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Annotations: map[string]string{lastApplied: "long", "a": "b"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		},
		Handler: name,
	}
}

func policy(name string) *v1alpha1.RuntimeClassPolicy {
	return &v1alpha1.RuntimeClassPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RuntimeClassPolicySpec{DefaultClass: "gvisor"}}
}

func pod(name, class, node string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: "uid-of-" + "pod"},
		Spec: corev1.PodSpec{
			RuntimeClassName: &class, NodeName: node, Overhead: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
			Containers: []corev1.Container{{
				Name: "c", Image: "i", Env: []corev1.EnvVar{{Name: "SECRET", Value: "x"}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}},
			}},
		},
		Status: corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes"},
		}},
	}
}

// start runs a cache until the test ends.
func start(t *testing.T, s *apiserver.Server, o Options) *Cache {
	t.Helper()
	client, err := NewClient(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	c := NewCache(client, o)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return c
}

// eventually waits for what other goroutines do.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

func all(t *testing.T) *apiserver.Server {
	return apiserver.New(t, classes, policies, namespaces, nodes, pods)
}

func TestCacheFollows(t *testing.T) {
	s := all(t)
	s.Put(classes, class("gvisor"))
	s.Put(namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"x": "y"}}})
	c := start(t, s, Options{})
	if c.Synced() && len(c.Classes.Names()) == 0 {
		t.Error("synced before anything was read")
	}
	eventually(t, "synced", c.Synced)
	got := c.Classes.Get("gvisor")
	if got == nil || got.Handler != "gvisor" || got.ManagedFields != nil || len(got.Annotations) != 1 {
		t.Errorf("class: %+v", got)
	}
	if ns := c.Namespaces.Get("team"); ns == nil || ns.Labels["a"] != "b" || ns.Annotations != nil {
		t.Errorf("namespace: %+v", ns)
	}
	revision := c.Classes.Revision()
	s.Put(classes, class("kata"))
	eventually(t, "kata", func() bool { return c.Classes.Get("kata") != nil })
	s.Delete(classes, "gvisor")
	eventually(t, "no gvisor", func() bool { return c.Classes.Get("gvisor") == nil })
	if names := c.Classes.Names(); !slices.Equal(names, []string{"kata"}) || len(c.Classes.List()) != 1 {
		t.Errorf("names: %v", names)
	}
	if c.Classes.Revision() == revision {
		t.Error("the revision is that from before the changes")
	}
	s.Disconnect()
	s.Put(classes, class("runc"))
	eventually(t, "runc after the connection was cut", func() bool { return c.Classes.Get("runc") != nil })
}

func TestHeardOfBookmarks(t *testing.T) {
	s := all(t)
	c := start(t, s, Options{Only: []string{Classes}})
	eventually(t, "synced", c.Synced)
	before := c.Classes.Status().Heard
	eventually(t, "a bookmark", func() bool {
		s.Bookmark(classes)
		return c.Classes.Status().Heard.After(before)
	})
	if n := len(c.Status()); n != 1 {
		t.Errorf("%d resources, wanted one", n)
	}
}

// Pods that have ended are not kept, also when they end while they are watched.
func TestPods(t *testing.T) {
	s := all(t)
	s.Put(pods, pod("runs", "gvisor", "node-1", corev1.PodRunning))
	s.Put(pods, pod("waits", "gvisor", "", corev1.PodPending))
	s.Put(pods, pod("ended", "gvisor", "node-1", corev1.PodSucceeded))
	c := start(t, s, Options{PodDetails: true, Only: []string{Pods}})
	eventually(t, "synced", c.Synced)
	runs, waits := c.Pods.Get("team/runs"), c.Pods.Get("team/waits")
	if runs == nil || waits == nil || c.Pods.Get("team/ended") != nil {
		t.Fatalf("pods: %v", c.Pods.Names())
	}
	if cpu := runs.Requests[corev1.ResourceCPU]; runs.Class != "gvisor" || runs.Node != "node-1" || runs.Pending != nil || cpu.String() != "3" {
		t.Errorf("running: %+v", runs)
	}
	if waits.Unscheduled == nil || waits.Unscheduled.Message != "0/1 nodes" || waits.Pending == nil {
		t.Fatalf("waiting: %+v", waits)
	}
	if got := waits.Pending.Spec.Containers[0]; got.Env != nil || len(got.Resources.Requests) != 1 {
		t.Errorf("container of the one that waits: %+v", got)
	}
	s.Put(pods, pod("runs", "gvisor", "node-1", corev1.PodFailed))
	eventually(t, "an end", func() bool { return c.Pods.Get("team/runs") == nil })
}

func TestBriefPods(t *testing.T) {
	s := all(t)
	s.Put(pods, pod("waits", "gvisor", "", corev1.PodPending))
	c := start(t, s, Options{Only: []string{Pods}})
	eventually(t, "synced", c.Synced)
	if got := c.Pods.Get("team/waits"); got.Requests != nil || got.Pending != nil || got.Key() != "team/waits" {
		t.Errorf("%+v", got)
	}
}

// Without the CRD there are no policies, and the rest works.
func TestPoliciesWithoutCRD(t *testing.T) {
	s := all(t)
	s.Vanish(policies)
	c := start(t, s, Options{})
	eventually(t, "synced", c.Synced)
	if got := c.Policies.Status(); !got.Absent || got.Trouble == "" {
		t.Errorf("status: %+v", got)
	}
	s.Serve(policies)
	s.Put(policies, policy("a"))
	eventually(t, "a policy, once there is a CRD", func() bool { return c.Policies.Get("a") != nil })
	if got := c.Policies.Status(); got.Absent || got.Trouble != "" {
		t.Errorf("status: %+v", got)
	}
	var changes []string
	c.Policies.mu.Lock()
	c.Policies.OnChange(func(key string, _, now *v1alpha1.RuntimeClassPolicy) {
		changes = append(changes, fmt.Sprint(key, " ", now != nil))
	})
	c.Policies.mu.Unlock()
	s.Vanish(policies)
	eventually(t, "no policy, once the CRD is gone", func() bool { return c.Policies.Get("a") == nil && c.Policies.Status().Absent })
	c.Policies.mu.Lock()
	defer c.Policies.mu.Unlock()
	if !slices.Equal(changes, []string{"a false"}) {
		t.Errorf("told: %v", changes)
	}
}

// An API server that streams no lists is asked for parts of them.
func TestListsInPages(t *testing.T) {
	s := all(t)
	const n = 3*pageSize - 1
	for i := range n {
		p := pod(fmt.Sprint("pod-", i), "gvisor", "", corev1.PodPending)
		p.UID = types.UID(p.Name)
		s.Put(pods, p)
	}
	var lists atomic.Int32
	s.FailWith(func(c apiserver.Call) int {
		if c.Verb == "list" {
			lists.Add(1)
		}
		if c.Verb == "watch" && lists.Load() == 0 {
			return http.StatusUnprocessableEntity
		}
		return 0
	})
	c := start(t, s, Options{Only: []string{Pods}, PodDetails: true})
	eventually(t, "synced", c.Synced)
	if got := c.Pods.Status(); got.Objects != n || got.Trouble != "" || lists.Load() != 3 {
		t.Errorf("%+v by %d lists", got, lists.Load())
	}
	if p := c.Pods.Get("team/pod-7").Pending; p == nil || p.Spec.Containers[0].Env != nil || p.Spec.Containers[0].Resources.Requests == nil {
		t.Errorf("pod: %+v", p)
	}
	s.Put(pods, pod("later", "gvisor", "", corev1.PodPending))
	eventually(t, "a watch after the list", func() bool { return c.Pods.Get("team/later") != nil })
}

// What an API server refuses is told, and tried again.
func TestTrouble(t *testing.T) {
	s := all(t)
	s.FailWith(func(c apiserver.Call) int {
		if c.Resource == Nodes {
			return http.StatusForbidden
		}
		return 0
	})
	c := start(t, s, Options{})
	eventually(t, "trouble", func() bool { return c.Nodes.Status().Trouble != "" })
	if c.Synced() || c.Nodes.Status().Absent {
		t.Error("synced without nodes")
	}
	s.FailWith(nil)
	eventually(t, "synced", c.Synced)
	if got := c.Nodes.Status().Trouble; got != "" {
		t.Errorf("trouble: %s", got)
	}
}

func TestClient(t *testing.T) {
	s := all(t)
	s.Put(classes, class("gvisor"))
	s.Put(namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}})
	client, err := NewClient(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	if c, err := client.Class(t.Context(), "gvisor"); err != nil || c.Handler != "gvisor" {
		t.Errorf("class: %+v %v", c, err)
	}
	if _, err := client.Class(t.Context(), "none"); err == nil {
		t.Error("found a class that is not there")
	}
	if ns, err := client.Namespace(t.Context(), "team"); err != nil || ns.Name != "team" {
		t.Errorf("namespace: %+v %v", ns, err)
	}
	n := 0
	err = client.List(t.Context(), nodev1.SchemeGroupVersion.WithResource(Classes), func(page runtime.Object) error {
		n += len(page.(*nodev1.RuntimeClassList).Items)
		return nil
	})
	if err != nil || n != 1 {
		t.Errorf("list: %d %v", n, err)
	}
}
