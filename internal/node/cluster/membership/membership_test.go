package membership

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/node/advert"
	"fairlead.run/internal/node/cluster/nodestatus"
	"fairlead.run/test/apiserver"
)

// One of the handlers waits until a time that all bubbles would share.
func init() { utilruntime.ErrorHandlers = nil }

var (
	nodes     = apiserver.Resource{Path: "api/v1/nodes", Kind: "Node"}
	leaseKind = apiserver.Resource{Path: "apis/coordination.k8s.io/v1/leases", Kind: "Lease", Namespaced: true}
	quiet     = slog.New(slog.DiscardHandler)
)

func newServer(t *testing.T) (*apiserver.Server, *cluster.Client) {
	t.Helper()
	server := apiserver.InMemory(t, nodes, leaseKind)
	client, err := cluster.NewClient(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	return server, client
}

func get[T any](t *testing.T, s *apiserver.Server, r apiserver.Resource, key string) *T {
	t.Helper()
	text, err := json.Marshal(s.Get(r, key))
	if err != nil {
		t.Fatal(err)
	}
	out := new(T)
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestCheckLabels(t *testing.T) {
	for key, ok := range map[string]bool{
		"zone": true, "example.com/zone": true, "kubernetes.io/hostname": true, "node.kubernetes.io/instance-type": true,
		"topology.kubernetes.io/zone": true, "node.kubernetes.io/pool": true, "x.node.kubernetes.io/pool": true, "kubelet.kubernetes.io/x": true,
		"node-role.kubernetes.io/worker": false, "kubernetes.io/x": false, "x.k8s.io/y": false,
		"node-restriction.kubernetes.io/x": false, "a.node-restriction.kubernetes.io/x": false, "notkubernetes.io/x": true, "a/b/c": false,
	} {
		if err := CheckLabels(map[string]string{key: "v"}); (err == nil) != ok {
			t.Errorf("%s: %v, want allowed %t", key, err, ok)
		}
	}
	if CheckLabels(map[string]string{"zone": "a b"}) == nil {
		t.Error("a value with a space is taken")
	}
}

func TestRegisterNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := newServer(t)
		failures := 0
		server.FailWith(func(apiserver.Call) int {
			codes := []int{500, 429, 503, 409}
			if failures++; failures <= len(codes) {
				return codes[failures-1]
			}
			return 0
		})
		taint := corev1.Taint{Key: "new", Effect: corev1.TaintEffectNoSchedule}
		got, err := Register(t.Context(), client, Registration{
			Name: "n", Hostname: "host", Labels: map[string]string{"pool": "a"}, Taints: []corev1.Taint{taint},
			Status: func() corev1.NodeStatus { return nodestatus.Of(nodestatus.Facts{Port: 10250}, nil, time.Now()) },
		}, quiet)
		if err != nil {
			t.Fatal(err)
		}
		n := get[corev1.Node](t, server, nodes, "n")
		if n.Labels["kubernetes.io/hostname"] != "host" || n.Labels["kubernetes.io/os"] != "linux" || n.Labels["pool"] != "a" ||
			len(n.Spec.Taints) != 1 || n.Status.DaemonEndpoints.KubeletEndpoint.Port != 10250 || got.UID != n.UID || n.UID == "" {
			t.Errorf("the node is %+v", n)
		}
	})
}

func TestRegisterTakesWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := newServer(t)
		was := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name:        "n",
				Labels:      map[string]string{"pool": "changed", "foreign": "x", "node.kubernetes.io/instance-type": "large", "kubernetes.io/hostname": "old"},
				Annotations: map[string]string{"note": "y"},
			},
			Spec: corev1.NodeSpec{PodCIDR: "10.1.0.0/24", Taints: []corev1.Taint{{Key: "theirs", Effect: "NoSchedule"}}},
		}
		server.Put(nodes, was)
		r := Registration{
			Name: "n", Hostname: "n", Labels: map[string]string{"pool": "a", "rack": "7"},
			Taints: []corev1.Taint{{Key: "ours", Effect: "NoSchedule"}}, Annotations: map[string]string{"more": "z"},
		}
		if _, err := Register(t.Context(), client, r, quiet); err != nil {
			t.Fatal(err)
		}
		n := get[corev1.Node](t, server, nodes, "n")
		want := map[string]string{"pool": "changed", "foreign": "x", "node.kubernetes.io/instance-type": "large", "kubernetes.io/hostname": "n", "rack": "7"}
		for key, value := range want {
			if n.Labels[key] != value {
				t.Errorf("label %s is %q, want %q", key, n.Labels[key], value)
			}
		}
		if n.Annotations["note"] != "y" || n.Annotations["more"] != "z" || n.Spec.PodCIDR != "10.1.0.0/24" || len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Key != "theirs" {
			t.Errorf("the node is %+v", n)
		}
		writes := func(c apiserver.Call) bool { return c.Verb == "patch" || c.Verb == "create" || c.Verb == "update" }
		before := server.Count(writes)
		if _, err := Register(t.Context(), client, r, quiet); err != nil {
			t.Fatal(err)
		}
		if n := server.Count(writes) - before; n != 0 {
			t.Errorf("a node that lacks nothing is written %d times", n)
		}
	})
}

// A machine that lives keeps its name; one that is dead loses it. One that was copied has the
// machine id of another.
func TestRegisterAnotherMachinesName(t *testing.T) {
	for name, theirs := range map[string]corev1.NodeSystemInfo{
		"machine id theirs": {MachineID: "theirs", SystemUUID: "a-b"}, "system UUID c-d": {MachineID: "ours", SystemUUID: "c-d"},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { anotherMachinesName(t, theirs, name) }) })
	}
}

func anotherMachinesName(t *testing.T, theirs corev1.NodeSystemInfo, said string) {
	server, client := newServer(t)
	server.Put(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{NodeInfo: theirs}})
	renew := func() {
		server.Put(leaseKind, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "kube-node-lease"},
			// Their clock is two minutes late.
			Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: time.Now().Add(-2 * time.Minute)}},
		})
	}
	renew()
	var done atomic.Bool
	var log strings.Builder
	var warned []string
	go func() {
		_, err := Register(t.Context(), client, Registration{
			Name: "n", Hostname: "n", MachineID: "ours", SystemUUID: "A-B", Warn: func(reason, message string) { warned = append(warned, reason+": "+message) },
		}, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Error(err)
		}
		done.Store(true)
	}()
	for range 30 {
		time.Sleep(10 * time.Second)
		renew()
	}
	if done.Load() {
		t.Fatal("the name of a machine that lives is taken")
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	if !done.Load() {
		t.Error("the name of a machine that is dead is not taken")
	}
	if !strings.Contains(log.String(), said) || !strings.Contains(log.String(), "--hostname-override") {
		t.Errorf("the log does not say whose name it is: %s", log.String())
	}
	if len(warned) != 2 || !strings.HasPrefix(warned[0], NameTaken+": ") || !strings.HasPrefix(warned[1], NameInherited+": ") || !strings.Contains(warned[1], said) {
		t.Errorf("told %q", warned)
	}
}

func TestLeaseIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := newServer(t)
		// Each third request fails, in every way in turn.
		var requests atomic.Int32
		server.Intercept(func(_ apiserver.Call, w http.ResponseWriter, r *http.Request) bool {
			switch requests.Add(1) % 12 {
			case 0:
				w.Header().Set("Retry-After", "2")
				w.WriteHeader(http.StatusTooManyRequests)
			case 3:
				w.WriteHeader(http.StatusConflict)
			case 6:
				w.WriteHeader(http.StatusInternalServerError)
			case 9:
				<-r.Context().Done()
			default:
				return false
			}
			return true
		})
		go func() { _ = NewLease(client, "n", func() types.UID { return "uid-n" }, quiet).Run(t.Context()) }()
		last, missing := time.Time{}, 0
		for range 600 {
			time.Sleep(time.Second)
			l := get[coordinationv1.Lease](t, server, leaseKind, "kube-node-lease/n")
			if l.Spec.RenewTime == nil {
				if missing++; missing > 30 {
					t.Fatal("there is no lease")
				}
				continue
			}
			if age := time.Since(l.Spec.RenewTime.Time); age > LeaseDuration {
				t.Fatalf("the lease is %s old", age)
			}
			if l.Spec.RenewTime.Time.Before(last) {
				t.Fatal("the lease has become older")
			}
			last = l.Spec.RenewTime.Time
			if *l.Spec.LeaseDurationSeconds != 40 || *l.Spec.HolderIdentity != "n" || len(l.OwnerReferences) != 1 || l.OwnerReferences[0].UID != "uid-n" {
				t.Fatalf("the lease is %+v", l)
			}
		}
		if n := server.Count(func(c apiserver.Call) bool { return c.Verb == "update" }); n < 40 || n > 100 {
			t.Errorf("there were %d writes in 10 minutes", n)
		}
	})
}

// Somebody else writes the lease, deletes it, and its time is in the future, as
// after a clock was set back.
func TestLeaseOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := newServer(t)
		l := NewLease(client, "n", func() types.UID { return "" }, quiet)
		future := metav1.MicroTime{Time: time.Now().Add(24 * time.Hour)}
		server.Put(leaseKind, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "kube-node-lease"}, Spec: coordinationv1.LeaseSpec{RenewTime: &future},
		})
		for range 2 {
			if err := l.renew(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := get[coordinationv1.Lease](t, server, leaseKind, "kube-node-lease/n")
			if !got.Spec.RenewTime.After(future.Time) {
				t.Errorf("renewed at %s, which is not after %s", got.Spec.RenewTime, future)
			}
			future = *got.Spec.RenewTime
			server.Put(leaseKind, got) // a conflict for the next
		}
		server.Delete(leaseKind, "kube-node-lease/n")
		if err := l.renew(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestBeats tells of a node as often as is asked for.
func TestBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := newServer(t)
		server.Put(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}})
		l := NewLease(client, "n", func() types.UID { return "" }, quiet)
		l.Duration = 2 * time.Minute
		s := NewStatus(client, "n", func(context.Context) Said { return facts("1Gi") }, quiet)
		s.Report = time.Minute
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour+time.Second)
		defer cancel()
		var running sync.WaitGroup
		running.Go(func() { _ = l.Run(ctx) })
		running.Go(func() { _ = s.Run(ctx) })
		running.Wait()
		if n := server.Count(func(c apiserver.Call) bool { return c.Resource == "leases" && c.Verb == "update" }); n != 120 {
			t.Errorf("%d renewals in an hour, want one each 30 s", n)
		}
		if n := server.Count(func(c apiserver.Call) bool { return c.Subresource == "status" }); n < 50 || n > 61 {
			t.Errorf("%d statuses in an hour, want one each minute", n)
		}
		if got := get[coordinationv1.Lease](t, server, leaseKind, "kube-node-lease/n"); *got.Spec.LeaseDurationSeconds != 120 {
			t.Errorf("%+v", got.Spec)
		}
	})
}

// statusOf runs a writer for a node that is registered.
func statusOf(t *testing.T, client *cluster.Client, said *atomic.Pointer[Said]) *Status {
	s := NewStatus(client, "n", func(context.Context) Said { return *said.Load() }, quiet)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return s
}

func facts(memory string) Said {
	return Said{Facts: nodestatus.Facts{
		Capacity: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}, Port: 10250,
		Addresses: []corev1.NodeAddress{{Type: "InternalIP", Address: "10.0.0.1"}, {Type: "Hostname", Address: "n"}},
	}}
}

func TestStatusIsWrittenWhenItChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := newServer(t)
		network := corev1.NodeCondition{Type: "NetworkUnavailable", Status: "False"}
		server.Put(nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": "a"}},
			Status: corev1.NodeStatus{
				Conditions: []corev1.NodeCondition{network}, VolumesAttached: []corev1.AttachedVolume{{Name: "v"}},
				Capacity:  corev1.ResourceList{"example.com/dongle": resource.MustParse("2"), "hugepages-2Mi": resource.MustParse("1Gi")},
				Addresses: []corev1.NodeAddress{{Type: "InternalIP", Address: "10.9.9.9"}},
			},
		})
		var said atomic.Pointer[Said]
		first := facts("1Gi")
		first.Handlers = []advert.Handler{{Name: "runc", Works: true}}
		said.Store(&first)
		s := statusOf(t, client, &said)
		patches := func() int { return server.Count(func(c apiserver.Call) bool { return c.Subresource == "status" }) }
		time.Sleep(4 * time.Minute)
		n := get[corev1.Node](t, server, nodes, "n")
		if patches() != 1 || len(n.Status.Conditions) != 5 || n.Status.Conditions[0].Type != "NetworkUnavailable" || len(n.Status.VolumesAttached) != 1 {
			t.Fatalf("after %d patches the status is %+v", patches(), n.Status)
		}
		if _, stays := n.Status.Capacity["hugepages-2Mi"]; stays || n.Status.Allocatable["example.com/dongle"] != resource.MustParse("2") || len(n.Status.Addresses) != 2 || n.Status.Addresses[0].Address != "10.0.0.1" {
			t.Errorf("the status is %+v", n.Status)
		}
		if n.Labels["handler.fairlead.run/runc"] != "true" || n.Labels["zone"] != "a" {
			t.Errorf("the labels are %v", n.Labels)
		}
		time.Sleep(150 * time.Second)
		if patches() != 2 {
			t.Errorf("after 6 and a half minutes there were %d patches, want a second one after 5", patches())
		}
		changed := metav1.Now()
		next := facts("1Gi")
		next.NotReady = []string{"node is shutting down"}
		said.Store(&next)
		s.Changed()
		synctest.Wait()
		n = get[corev1.Node](t, server, nodes, "n")
		ready := n.Status.Conditions[4]
		if patches() != 3 || ready.Type != corev1.NodeReady || ready.Status != corev1.ConditionFalse || ready.LastTransitionTime.Unix() != changed.Unix() {
			t.Errorf("after %d patches the condition is %+v", patches(), ready)
		}
		// The cluster says of the node that nobody knows: it has not heard from it.
		n.Status.Conditions[4].Status = corev1.ConditionUnknown
		server.Put(nodes, n)
		synctest.Wait()
		if n = get[corev1.Node](t, server, nodes, "n"); n.Status.Conditions[4].Status != corev1.ConditionFalse {
			t.Errorf("the condition stays %+v", n.Status.Conditions[4])
		}
	})
}

func TestStatusSurvives(t *testing.T) {
	for _, code := range []int{409, 429, 500, 0} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, client := newServer(t)
				server.Put(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
				var failing atomic.Bool
				failing.Store(true)
				server.Intercept(func(c apiserver.Call, w http.ResponseWriter, r *http.Request) bool {
					if c.Verb != "patch" || !failing.Load() {
						return false
					}
					if code == 0 {
						<-r.Context().Done()
						return true
					}
					w.WriteHeader(code)
					return true
				})
				var said atomic.Pointer[Said]
				first := facts("1Gi")
				said.Store(&first)
				statusOf(t, client, &said)
				time.Sleep(10 * time.Minute)
				failing.Store(false)
				time.Sleep(30 * time.Second)
				if n := get[corev1.Node](t, server, nodes, "n"); n.Status.DaemonEndpoints.KubeletEndpoint.Port != 10250 {
					t.Errorf("the status is %+v", n.Status)
				}
			})
		})
	}
}

// TestStatusWithoutLabels is written where an admission policy lets no node label itself.
func TestStatusWithoutLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := newServer(t)
		server.Put(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
		server.Intercept(func(c apiserver.Call, w http.ResponseWriter, _ *http.Request) bool {
			if c.Verb != "patch" || c.Subresource == "status" {
				return false
			}
			w.WriteHeader(http.StatusForbidden)
			return true
		})
		var said atomic.Pointer[Said]
		first := facts("1Gi")
		first.Handlers = []advert.Handler{{Name: "runc", Works: true}}
		said.Store(&first)
		statusOf(t, client, &said)
		time.Sleep(time.Minute)
		if n := get[corev1.Node](t, server, nodes, "n"); n.Status.DaemonEndpoints.KubeletEndpoint.Port != 10250 {
			t.Errorf("the status is %+v", n.Status)
		}
		next := facts("2Gi")
		next.Handlers = first.Handlers
		said.Store(&next)
		time.Sleep(time.Minute)
		if n := get[corev1.Node](t, server, nodes, "n"); n.Status.Capacity.Memory().String() != "2Gi" {
			t.Errorf("the status is %+v", n.Status)
		}
	})
}

// TestDeclaredFeatures are told, and to API servers that do not know of them no more often than
// heartbeats.
func TestDeclaredFeatures(t *testing.T) {
	f, now := nodestatus.Facts{Declared: []string{"B", "A"}}, time.Now()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}}
	node.Status = nodestatus.Of(f, nil, now)
	for _, tt := range []struct {
		has  []string
		due  bool
		told bool
	}{
		{[]string{"A", "B"}, false, false}, {[]string{"A"}, false, true}, {nil, false, false}, {nil, true, true},
	} {
		node.Status.DeclaredFeatures = tt.has
		patch, err := Patch(node, f, now.Add(time.Second), tt.due)
		if told := strings.Contains(string(patch), `"declaredFeatures":["A","B"]`); err != nil || told != tt.told || !tt.due && !told && patch != nil {
			t.Errorf("%+v: %s, %v", tt, patch, err)
		}
	}
}
