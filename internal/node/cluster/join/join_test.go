package join

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/endpoint"
	"fairlead.run/internal/node/eviction"
	"fairlead.run/internal/node/fakeruntime"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/resources"
	"fairlead.run/internal/node/server"
	"fairlead.run/internal/node/source/gather"
	"fairlead.run/internal/node/stock"
	"fairlead.run/test/apiserver"
)

var (
	podsOf        = apiserver.Resource{Path: "api/v1/pods", Kind: "Pod", Namespaced: true}
	nodesOf       = apiserver.Resource{Path: "api/v1/nodes", Kind: "Node"}
	eventsOf      = apiserver.Resource{Path: "api/v1/events", Kind: "Event", Namespaced: true}
	claimsOf      = apiserver.Resource{Path: "api/v1/persistentvolumeclaims", Kind: "PersistentVolumeClaim", Namespaced: true}
	volumesOf     = apiserver.Resource{Path: "api/v1/persistentvolumes", Kind: "PersistentVolume"}
	csiDriversOf  = apiserver.Resource{Path: "apis/storage.k8s.io/v1/csidrivers", Kind: "CSIDriver"}
	csiNodesOf    = apiserver.Resource{Path: "apis/storage.k8s.io/v1/csinodes", Kind: "CSINode"}
	attachmentsOf = apiserver.Resource{Path: "apis/storage.k8s.io/v1/volumeattachments", Kind: "VolumeAttachment"}
	resourced     = []apiserver.Resource{
		podsOf, nodesOf, eventsOf,
		{Path: "api/v1/configmaps", Kind: "ConfigMap", Namespaced: true},
		{Path: "api/v1/secrets", Kind: "Secret", Namespaced: true},
		{Path: "api/v1/services", Kind: "Service", Namespaced: true},
		{Path: "apis/node.k8s.io/v1/runtimeclasses", Kind: "RuntimeClass"},
		{Path: "apis/coordination.k8s.io/v1/leases", Kind: "Lease", Namespaced: true},
		{Path: "apis/storage.k8s.io/v1/csidrivers", Kind: "CSIDriver"},
		csiNodesOf, attachmentsOf, claimsOf, volumesOf,
	}
)

// site is a cluster, and a computer on which one node after the other may run.
type site struct {
	*apiserver.Server
	t    *testing.T
	fake *fakeruntime.Runtime
	dir  string
	// shared is the folder that drivers know.
	shared string
	health string // address
	ips    []string
	served Served
	static gather.Config
	stop   func()
}

func newSite(t *testing.T) *site {
	dir := t.TempDir()
	return &site{Server: apiserver.InMemory(t, resourced...), t: t, fake: fakeruntime.New(), dir: dir, shared: dir + "/kubelet", ips: []string{"192.0.2.7"}}
}

// boot starts a node, which s.stop ends.
func (s *site) boot() *Node {
	s.t.Helper()
	client, err := cluster.NewClient(s.Config())
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	n, err := New(ctx, Config{
		Endpoint: &endpoint.Endpoint{Runtime: s.fake, Images: s.fake.Images, Name: "fake", Version: "1"}, Client: client, Events: client,
		Node: podspec.Node{Name: "n", IPs: podspec.Fixed(s.ips), DNS: podspec.Fixed(podspec.DNS{})}, Stock: stock.Default,
		API: API{Address: "127.0.0.1:0", Healthz: s.health, Served: s.served, AlwaysAllow: true, Anonymous: true, Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return nil, errors.New("nobody asks")
		}},
		Resources: resources.Settings{ // whatever the machine of the tests runs short of
			Cgroups: resources.Cgroups{Off: true}, Capacity: capacity.Settings{MaxPods: 110}, Eviction: resources.Eviction{Settings: eviction.Settings{Hard: map[string]string{}}},
		},
		Static: s.static, Root: s.dir + "/lib", State: s.dir + "/run", Shared: s.shared, Logs: s.dir + "/logs", Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(s.stop)
	return n
}

// bind has a pod of one container run on a node.
func (s *site) bind(node, name string) { s.bindWith(node, name, func(*corev1.Pod) {}) }

// bindWith does so with a pod that is a little different.
func (s *site) bindWith(node, name string, change func(*corev1.Pod)) {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uidOf(name)},
		Spec:       corev1.PodSpec{NodeName: node, RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "c", Image: "i:1", ImagePullPolicy: corev1.PullIfNotPresent}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
	change(p)
	s.Put(podsOf, p)
}

func uidOf(name string) types.UID {
	return types.UID(fmt.Sprintf("0d6f7a0c-2c2f-4a8e-9d0a-%012x", len(name)<<32+int(crc(name))))
}

// crc tells names apart.
func crc(name string) (sum uint32) {
	for _, c := range name {
		sum = sum*31 + uint32(c)
	}
	return sum
}

// status is what the API server has of a pod; nil if it has none.
func (s *site) status(name string) *corev1.PodStatus {
	had := s.Get(podsOf, "default/"+name)
	if had == nil {
		return nil
	}
	text, err := json.Marshal(had)
	if err != nil {
		s.t.Fatal(err)
	}
	var p corev1.Pod
	if err := json.Unmarshal(text, &p); err != nil {
		s.t.Fatal(err)
	}
	return &p.Status
}

// runs says that the API server has a pod as running and ready, with so many restarts.
func (s *site) runs(name string, restarts int32) bool {
	st := s.status(name)
	if st == nil || st.Phase != corev1.PodRunning || len(st.ContainerStatuses) != 1 {
		return false
	}
	c := st.ContainerStatuses[0]
	return c.Ready && c.State.Running != nil && c.RestartCount == restarts
}

func (s *site) await(what string, so func() bool) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("%s does not come; calls %q", what, s.fake.Calls(""))
		}
	}
}

// TestPodsLife runs a pod that is bound to the node, tells how it is, and takes it away.
func TestPodsLife(t *testing.T) {
	s := newSite(t)
	s.boot()
	s.await("the node", func() bool { return s.Get(nodesOf, "n") != nil })
	s.bind("n", "a")
	s.await("the pod", func() bool { return s.runs("a", 0) })
	s.fake.Exit("a/c", 1)
	s.await("the restart", func() bool { return s.runs("a", 1) })
	s.stop()
	s.boot()
	s.await("the next node", func() bool { return s.runs("a", 1) })
	s.Delete(podsOf, "default/a")
	s.await("the end", func() bool { return len(s.fake.Sandboxes()) == 0 })
	if got := s.fake.Of("a/c"); got != "create, start, create, start, stop in 30s" {
		t.Error(got)
	}
}

// TestEventsOfContainers has events say which container of a pod they are about.
func TestEventsOfContainers(t *testing.T) {
	s := newSite(t)
	s.boot()
	s.await("the node", func() bool { return s.Get(nodesOf, "n") != nil })
	s.bindWith("n", "a", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "side", Image: "i:1", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
	})
	want := map[string]string{"Container c started": "spec.containers{c}", "Container side started": "spec.initContainers{side}"}
	s.await("the events", func() bool {
		n := 0
		for _, o := range s.All(eventsOf) {
			message, _ := o["message"].(string)
			about, _ := o["involvedObject"].(map[string]any)
			if path := want[message]; path != "" {
				n++
				if about["fieldPath"] != path {
					t.Fatalf("%s: it is about %v, want %s", message, about, path)
				}
			}
		}
		return n == len(want)
	})
	s.bindWith("n", "b", func(p *corev1.Pod) { p.Spec.HostUsers = new(false) })
	s.await("an event of a pod", func() bool {
		for _, o := range s.All(eventsOf) {
			if about, _ := o["involvedObject"].(map[string]any); o["reason"] == "UserNamespacesNotSupported" {
				return about["name"] == "b" && about["fieldPath"] == nil
			}
		}
		return false
	})
}

// TestEvictionIsAnnotated has the event of an evicted pod say what programs look for.
func TestEvictionIsAnnotated(t *testing.T) {
	s := newSite(t)
	n := s.boot()
	s.await("the node", func() bool { return s.Get(nodesOf, "n") != nil })
	s.bind("n", "a")
	s.await("the pod", func() bool { return s.runs("a", 0) })
	n.tell().Evicted(n.agent.Pods()[0], "The node was low on resource: memory. ", map[string]string{"starved_resource": "memory"})
	s.await("the event", func() bool {
		for _, o := range s.All(eventsOf) {
			if e := into[corev1.Event](t, o); e.Reason == eviction.Reason {
				return e.Type == corev1.EventTypeWarning && e.InvolvedObject.Name == "a" && e.Annotations["starved_resource"] == "memory"
			}
		}
		return false
	})
}

// TestUserNamespace refuses a pod that asks for one: it would run as the node's root.
func TestUserNamespace(t *testing.T) {
	s := newSite(t)
	s.boot()
	s.await("the node", func() bool { return s.Get(nodesOf, "n") != nil })
	s.bindWith("n", "a", func(p *corev1.Pod) { p.Spec.HostUsers = new(false) })
	s.bindWith("n", "b", func(p *corev1.Pod) { p.Spec.HostUsers = new(true) })
	s.await("the refusal", func() bool { return s.status("a").Phase == corev1.PodFailed })
	if st := s.status("a"); st.Reason != "UserNamespacesNotSupported" || len(s.fake.Calls("run a")) > 0 {
		t.Errorf("%+v, calls %q", st, s.fake.Calls(""))
	}
	s.await("the other one", func() bool { return s.runs("b", 0) })
}

// TestUnsupported refuses pods that could never have their volumes, resource claims or
// groups, by their names.
func TestUnsupported(t *testing.T) {
	s := newSite(t)
	s.boot()
	s.await("the node", func() bool { return s.Get(nodesOf, "n") != nil })
	s.bindWith("n", "a", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/"}}}}
	})
	s.bindWith("n", "b", func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("one")}, {Name: "nic", ResourceClaimName: new("two")}}
	})
	s.bindWith("n", "c", func(p *corev1.Pod) {
		p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "c-extended-resources"}
	})
	s.bindWith("n", "d", func(p *corev1.Pod) {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroupsPolicy: new(corev1.SupplementalGroupsPolicyStrict)}
	})
	for name, want := range map[string][2]string{
		"a": {"UnsupportedVolume", "volume v: volumes of kind nfs are not supported; "},
		"b": {"UnsupportedResourceClaims", "the pod has resource claims (gpu, nic), "},
		"c": {"UnsupportedResourceClaims", "the pod has resource claims (c-extended-resources), "},
		"d": {"SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=Strict is not supported in this node, "},
	} {
		s.await("the refusal of "+name, func() bool { return s.status(name).Phase == corev1.PodFailed })
		if st := s.status(name); st.Reason != want[0] || !strings.Contains(st.Message, want[1]) || len(s.fake.Calls("run "+name)) > 0 {
			t.Errorf("%s: %+v, calls %q", name, st, s.fake.Calls(""))
		}
	}
}

// TestTroubles has an API server that answers with errors for a while. What runs goes on,
// what ends is restarted, and once there are answers the statuses become true by
// themselves.
func TestTroubles(t *testing.T) {
	writes := func(c apiserver.Call) bool { return c.Verb == "patch" || c.Verb == "update" || c.Verb == "create" }
	watches := func(c apiserver.Call) bool { return c.Verb == "watch" }
	all := func(apiserver.Call) bool { return true }
	for name, trouble := range map[string]struct {
		code  int
		of    func(apiserver.Call) bool
		delay time.Duration
	}{
		"conflicts":        {http.StatusConflict, writes, 0},
		"too many":         {http.StatusTooManyRequests, all, 0},
		"broken":           {http.StatusInternalServerError, all, 0},
		"away":             {http.StatusServiceUnavailable, all, 0},
		"watches are gone": {http.StatusGone, watches, 0},
		"slow watches":     {0, watches, 3 * time.Second},
		"slow writes":      {0, writes, time.Second},
		"forbidden writes": {http.StatusForbidden, writes, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.boot()
			for i := range 5 {
				s.bind("n", fmt.Sprintf("p%d", i))
			}
			s.await("the pods", func() bool {
				for i := range 5 {
					if !s.runs(fmt.Sprintf("p%d", i), 0) {
						return false
					}
				}
				return true
			})
			var refused atomic.Int32
			s.FailWith(func(c apiserver.Call) int {
				if !trouble.of(c) {
					return 0
				}
				refused.Add(1)
				time.Sleep(trouble.delay)
				return trouble.code
			})
			s.HangUp()
			s.fake.Exit("p0/c", 1)
			s.await("the restart", func() bool { return len(s.fake.Calls("start p0/c")) == 2 })
			s.await("a refusal", func() bool { return refused.Load() > 0 })
			s.bind("n", "late")
			time.Sleep(2 * time.Second) // of trouble, in which nobody may give up
			s.FailWith(nil)
			s.await("the truth", func() bool { return s.runs("p0", 1) && s.runs("late", 0) })
			for i := 1; i < 5; i++ {
				if got := s.fake.Of(fmt.Sprintf("p%d/c", i)); got != "create, start" || !s.runs(fmt.Sprintf("p%d", i), 0) {
					t.Errorf("pod p%d: %s", i, got)
				}
			}
		})
	}
}

// TestOthersPods is a node in a cluster of 20,000 pods. It asks for its own alone, and
// needs no memory for others.
func TestOthersPods(t *testing.T) {
	s := newSite(t)
	others := 20_000
	for i := range others {
		s.Put(podsOf, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("other-%d", i), Annotations: map[string]string{"text": strings.Repeat("x", 2000)}},
			Spec:       corev1.PodSpec{NodeName: fmt.Sprintf("other-%d", i%100)},
		})
	}
	s.bind("n", "mine")
	var wide atomic.Int32
	s.Intercept(func(c apiserver.Call, _ http.ResponseWriter, r *http.Request) bool {
		if c.Resource == "pods" && c.Name == "" && (c.Verb == "list" || c.Verb == "watch") && r.URL.Query().Get("fieldSelector") != "spec.nodeName=n" {
			wide.Add(1)
		}
		return false
	})
	before := heap()
	n := s.boot()
	s.await("its pod", func() bool { return s.runs("mine", 0) })
	for i := range 1000 { // and others change all the time
		s.Put(podsOf, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("other-%d", i)}, Spec: corev1.PodSpec{NodeName: "other-1"}})
	}
	s.bind("n", "second")
	s.await("another of its pods", func() bool { return s.runs("second", 0) })
	if wide.Load() > 0 {
		t.Errorf("pods of others were asked for %d times", wide.Load())
	}
	if pods := n.agent.Pods(); len(pods) != 2 {
		t.Errorf("it has %d pods", len(pods))
	}
	// Those of others take 40 MB, in the server that is in this process, too.
	if grown := int64(heap()) - int64(before); grown > 20<<20 {
		t.Errorf("it needs %d MiB", grown>>20)
	}
}

// heap is what is in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestNodeAPI answers what the node holds to, how probes end, and whether the agent goes on.
// TestHealthzAlone is served to whoever asks for it on this machine, also if its port is
// free only later.
func TestHealthzAlone(t *testing.T) {
	s := newSite(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.health = taken.Addr().String()
	s.boot()
	s.await("the node", func() bool { return s.Get(nodesOf, "n") != nil })
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	get := func(path string) int {
		r, err := http.Get("http://" + s.health + path)
		if err != nil {
			return 0
		}
		_ = r.Body.Close()
		return r.StatusCode
	}
	s.await("its health", func() bool { return get("/healthz") == http.StatusOK })
	if code := get("/pods"); code != http.StatusNotFound {
		t.Errorf("it tells of pods: %d", code)
	}
}

// TestTwoAddresses has a node of both families say so, and its pods as well, the main
// address first.
func TestTwoAddresses(t *testing.T) {
	s := newSite(t)
	s.ips = []string{"2001:db8::7", "192.0.2.7"}
	s.boot()
	s.bindWith("n", "a", func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	s.await("the pod", func() bool { return s.runs("a", 0) })
	var addresses []string
	for _, a := range into[corev1.Node](t, s.Get(nodesOf, "n")).Status.Addresses {
		addresses = append(addresses, a.Address)
	}
	if want := []string{"2001:db8::7", "192.0.2.7", "n"}; !slices.Equal(addresses, want) {
		t.Errorf("the node is at %v, want %v", addresses, want)
	}
	status := s.status("a")
	host, pod := []string{status.HostIP}, []string{status.PodIP}
	for _, ip := range status.HostIPs {
		host = append(host, ip.IP)
	}
	for _, ip := range status.PodIPs {
		pod = append(pod, ip.IP)
	}
	if want := []string{"2001:db8::7", "2001:db8::7", "192.0.2.7"}; !slices.Equal(host, want) || !slices.Equal(pod, want) {
		t.Errorf("the pod's host is at %v, and the pod itself at %v, want %v", host, pod, want)
	}
}

// TestServed serves what has to be asked for only then, and checkpoints in any case.
func TestServed(t *testing.T) {
	s := newSite(t)
	logs, level := t.TempDir(), &slog.LevelVar{}
	if err := os.WriteFile(logs+"/syslog", []byte("it began"), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := func(n *Node, method, path, body string) (int, string) {
		w := httptest.NewRecorder()
		n.server.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
		return w.Code, w.Body.String()
	}
	n := s.boot()
	s.await("the node", func() bool { return s.Get(nodesOf, "n") != nil })
	for path, method := range map[string]string{"/logs/syslog": "GET", "/debug/flags/v": "PUT", "/debug/pprof/": "GET"} {
		if code, said := ask(n, method, path, "5"); code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d %s", path, code, said)
		}
	}
	s.bind("n", "a")
	s.await("the pod", func() bool { return s.runs("a", 0) })
	code, said := ask(n, "POST", "/checkpoint/default/a/c", "")
	made, err := filepath.Glob(s.shared + "/checkpoints/checkpoint-a_default-c-*.tar")
	if code != http.StatusOK || err != nil || len(made) != 1 || !strings.Contains(said, made[0]) {
		t.Errorf("a checkpoint: %d %s, made %q, %v", code, said, made, err)
	}
	s.stop()
	s.served = Served{Debugging: server.Debugging{Profiling: true, Level: level}, NodeLogs: server.NodeLogs{Folder: logs}}
	n = s.boot()
	if code, said := ask(n, "GET", "/logs/syslog", ""); code != http.StatusOK || said != "it began" {
		t.Errorf("a log: %d %s", code, said)
	}
	if code, said := ask(n, "PUT", "/debug/flags/v", "5"); code != http.StatusOK || level.Level() != slog.LevelDebug {
		t.Errorf("the level: %d %s", code, said)
	}
}

func TestNodeAPI(t *testing.T) {
	s := newSite(t)
	n := s.boot()
	s.await("the node", func() bool { return s.Get(nodesOf, "n") != nil })
	s.bindWith("n", "a", func(p *corev1.Pod) {
		p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"ask"}}}, PeriodSeconds: 1}
	})
	s.await("the pod", func() bool { return s.runs("a", 0) })
	get := func(path string) string {
		w := httptest.NewRecorder()
		n.server.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
		return w.Body.String()
	}
	var shown struct {
		Config struct {
			MaxPods       int    `json:"maxPods"`
			LogSize       string `json:"containerLogMaxSize"`
			LogFiles      int    `json:"containerLogMaxFiles"`
			Authorization struct{ Mode string }
		} `json:"kubeletconfig"`
	}
	if err := json.Unmarshal([]byte(get("/configz")), &shown); err != nil || shown.Config.MaxPods != 110 || shown.Config.LogSize != "10Mi" || shown.Config.LogFiles != 5 || shown.Config.Authorization.Mode != "AlwaysAllow" {
		t.Errorf("%+v, %v", shown, err)
	}
	s.await("a probe", func() bool {
		return strings.Contains(get("/metrics/probes"), `prober_probe_total{container="c",namespace="default",pod="a",pod_uid="`+string(uidOf("a"))+`",probe_type="Readiness",result="successful"}`)
	})
	if got := get("/healthz/syncloop"); got != "ok" {
		t.Errorf("%q", got)
	}
	metrics := get("/metrics")
	for _, want := range []string{
		"kubelet_started_pods_total 1", `kubelet_started_containers_total{container_type="container"} 1`, "kubelet_pod_start_duration_seconds_count 1",
		`kubelet_pod_worker_duration_seconds_count{operation_type="create"} 1`, "process_resident_memory_bytes ", "go_goroutines ",
		`kubelet_desired_pods{static=""} 1`, "# TYPE kubelet_image_pull_duration_seconds histogram", "kubelet_pleg_relist_duration_seconds_count ", "# TYPE storage_operation_duration_seconds histogram",
		`kubernetes_build_info{major="1",minor="36",git_version="v1.36.3+fairlead",`,
	} {
		if !strings.Contains(metrics, "\n"+want) {
			t.Errorf("there is no %s in\n%s", want, metrics)
		}
	}
}
