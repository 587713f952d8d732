package runtimes

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gardener "fairlead.run/api/gardener/v1alpha1"
	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/names"
	"fairlead.run/internal/operator/plugins"
	"fairlead.run/internal/webhook/review"
)

// memory is a cluster of a few objects.
type memory struct {
	pools    []v1alpha1.WorkerPool
	runtimes []gardener.ContainerRuntime
	classes  map[string]*nodev1.RuntimeClass
	users    []string
	nodes    []*corev1.Node
	version  string // "" is one that is not told
	err      error
}

func (m *memory) Pools(context.Context) ([]v1alpha1.WorkerPool, error) { return m.pools, m.err }
func (m *memory) Payload(_ context.Context, typ string) (*v1alpha1.RuntimePayload, error) {
	p := &v1alpha1.RuntimePayload{}
	p.Spec.Manifest = payload.RuntimePayload{Type: typ, Version: "1", Architectures: []string{"amd64"}, Handlers: []payload.Handler{{Name: "runsc", Containerd: &payload.ContainerdHandler{}}}}
	return p, m.err
}

func (m *memory) Runtimes(context.Context, string) ([]gardener.ContainerRuntime, error) {
	return m.runtimes, m.err
}

func (m *memory) Class(_ context.Context, name string) (*nodev1.RuntimeClass, error) {
	return m.classes[name], m.err
}
func (m *memory) Users(string) []string { return m.users }
func (m *memory) Nodes() []*corev1.Node { return m.nodes }
func (m *memory) Version(context.Context) (string, error) {
	if m.version == "" {
		return "", errors.New("the way is blocked")
	}
	return m.version, nil
}

func request(t *testing.T, op review.Operation, k kind, object, old any) *review.Request {
	t.Helper()
	raw := func(o any) json.RawMessage {
		if o == nil {
			return nil
		}
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	return &review.Request{UID: "1", Operation: op, Namespace: "team", Kind: metav1.GroupVersionKind{Group: k.group, Version: k.version, Kind: k.name}, Object: raw(object), OldObject: raw(old)}
}

func pool(change func(*v1alpha1.WorkerPool)) *v1alpha1.WorkerPool {
	p := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	p.Spec = v1alpha1.WorkerPoolSpec{
		NodeSelector: map[string]string{"a": "b"}, MachineImage: v1alpha1.MachineImage{Name: "ubuntu"}, Architecture: "amd64",
		CRI: v1alpha1.CRI{Name: "containerd", ContainerRuntimes: []v1alpha1.PoolRuntime{{Type: "gvisor"}}},
	}
	if change != nil {
		change(p)
	}
	return p
}

func runtimeOf(change func(*gardener.ContainerRuntime)) *gardener.ContainerRuntime {
	c := &gardener.ContainerRuntime{ObjectMeta: metav1.ObjectMeta{Name: "gvisor-a", Namespace: "team"}}
	c.Spec = gardener.ContainerRuntimeSpec{Type: "gvisor", BinaryPath: "/usr/bin"}
	c.Spec.WorkerPool.Name, c.Spec.WorkerPool.Selector.MatchLabels = "a", map[string]string{"a": "b"}
	if change != nil {
		change(c)
	}
	return c
}

var (
	ofPool    = kind{"fairlead.run", "v1alpha1", "WorkerPool"}
	ofPayload = kind{"fairlead.run", "v1alpha1", "RuntimePayload"}
	ofRuntime = kind{"extensions.gardener.cloud", "v1alpha1", "ContainerRuntime"}
	ofShoot   = kind{"core.gardener.cloud", "v1beta1", "Shoot"}
	ofClass   = kind{"node.k8s.io", "v1", "RuntimeClass"}
)

func TestAnswers(t *testing.T) {
	shoot := func(version string) any {
		return map[string]any{"spec": map[string]any{"kubernetes": map[string]any{"version": version}, "provider": map[string]any{"type": "aws", "workers": []any{
			map[string]any{"name": "w", "machine": map[string]any{"type": "m5.large"}, "cri": map[string]any{"name": "containerd", "containerRuntimes": []any{map[string]any{"type": "kata-containers"}}}},
		}}}}
	}
	ours := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "gvisor", Labels: map[string]string{names.ManagedBy: names.Manager}}, Handler: "runsc"}
	foreign := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "gvisor"}, Handler: "mine"}
	now := metav1.Now()
	for name, test := range map[string]struct {
		ask     func(*Rules) func(context.Context, *review.Request) (review.Answer, error)
		request *review.Request
		cluster memory
		refused string // "" admits
	}{
		"a pool":                     {poolsOf, request(t, review.Create, ofPool, pool(nil), nil), memory{}, ""},
		"a pool of a wrong type":     {poolsOf, request(t, review.Create, ofPool, pool(func(p *v1alpha1.WorkerPool) { p.Spec.CRI.ContainerRuntimes[0].Type = "x" }), nil), memory{}, "spec.cri.containerRuntimes[0].type"},
		"a class of another":         {poolsOf, request(t, review.Create, ofPool, pool(nil), nil), memory{classes: map[string]*nodev1.RuntimeClass{"gvisor": foreign}}, "RuntimeClass gvisor, which is somebody else's"},
		"a class of ours":            {poolsOf, request(t, review.Create, ofPool, pool(nil), nil), memory{classes: map[string]*nodev1.RuntimeClass{"gvisor": ours}}, ""},
		"what was wrong before":      {poolsOf, request(t, review.Update, ofPool, pool(func(p *v1alpha1.WorkerPool) { p.Spec.MachineType = "x" }), pool(nil)), memory{classes: map[string]*nodev1.RuntimeClass{"gvisor": foreign}}, ""},
		"another CRI":                {poolsOf, request(t, review.Update, ofPool, pool(func(p *v1alpha1.WorkerPool) { p.Spec.CRI = v1alpha1.CRI{Name: "crio"} }), pool(nil)), memory{}, "spec.cri.name: Forbidden"},
		"a pool that goes":           {poolsOf, request(t, review.Update, ofPool, pool(func(p *v1alpha1.WorkerPool) { p.DeletionTimestamp = &now; p.Spec.CRI.Name = "x" }), pool(nil)), memory{}, ""},
		"the same nodes":             {poolsOf, request(t, review.Create, ofPool, pool(func(p *v1alpha1.WorkerPool) { p.Name = "b" }), nil), memory{pools: []v1alpha1.WorkerPool{*pool(nil)}}, "WorkerPool a has the same one"},
		"old kubelets":               {poolsOf, request(t, review.Create, ofPool, pool(nil), nil), memory{nodes: []*corev1.Node{kubelet("v1.37.0", "b"), kubelet("v1.13.9", "b")}, version: "v1.37.0"}, "spec.kubernetesVersion: Invalid value: \"v1.13.9\""},
		"old kubelets of others":     {poolsOf, request(t, review.Create, ofPool, pool(nil), nil), memory{nodes: []*corev1.Node{kubelet("v1.37.0", "b"), kubelet("v1.13.9", "c")}, version: "v1.13.9"}, ""},
		"an old API server":          {poolsOf, request(t, review.Create, ofPool, pool(nil), nil), memory{nodes: []*corev1.Node{kubelet("v1.37.0", "c"), kubelet("", "b")}, version: "v1.13.9"}, "spec.kubernetesVersion: Invalid value: \"v1.13.9\""},
		"a version, and old ones":    {poolsOf, request(t, review.Create, ofPool, pool(func(p *v1alpha1.WorkerPool) { p.Spec.KubernetesVersion = "1.37.0" }), nil), memory{nodes: []*corev1.Node{kubelet("v1.13.9", "b")}, version: "v1.13.9"}, ""},
		"a machine that cannot":      {poolsOf, request(t, review.Create, ofPool, pool(small), nil), memory{}, "spec.machineType: Invalid value: \"m5.large\""},
		"one whose nodes can":        {poolsOf, request(t, review.Create, ofPool, pool(small), nil), memory{nodes: []*corev1.Node{able("b")}}, ""},
		"one whose nodes are others": {poolsOf, request(t, review.Create, ofPool, pool(small), nil), memory{nodes: []*corev1.Node{able("c")}}, "spec.machineType"},
		"a payload":                  {payloadsOf, request(t, review.Create, ofPayload, &v1alpha1.RuntimePayload{}, nil), memory{}, "spec.manifest.apiVersion"},
		"a runtime":                  {runtimesOf, request(t, review.Create, ofRuntime, runtimeOf(nil), nil), memory{}, ""},
		"a read-only folder":         {runtimesOf, request(t, review.Create, ofRuntime, runtimeOf(nil), nil), memory{nodes: []*corev1.Node{flatcar("b")}}, "spec.binaryPath: Invalid value: \"/usr/bin\": node"},
		"one of other nodes":         {runtimesOf, request(t, review.Create, ofRuntime, runtimeOf(nil), nil), memory{nodes: []*corev1.Node{flatcar("c")}}, ""},
		"one that becomes so":        {runtimesOf, request(t, review.Update, ofRuntime, runtimeOf(nil), runtimeOf(func(c *gardener.ContainerRuntime) { c.Spec.BinaryPath = "/opt/bin" })), memory{nodes: []*corev1.Node{flatcar("b")}}, "spec.binaryPath"},
		"a twin that goes":           {runtimesOf, request(t, review.Create, ofRuntime, runtimeOf(func(c *gardener.ContainerRuntime) { c.Name = "b" }), nil), memory{runtimes: []gardener.ContainerRuntime{*runtimeOf(func(c *gardener.ContainerRuntime) { c.DeletionTimestamp = &now })}}, ""},
		"a twin":                     {runtimesOf, request(t, review.Create, ofRuntime, runtimeOf(func(c *gardener.ContainerRuntime) { c.Name = "b" }), nil), memory{runtimes: []gardener.ContainerRuntime{*runtimeOf(nil)}}, "team/gvisor-a"},
		"another type":               {runtimesOf, request(t, review.Update, ofRuntime, runtimeOf(func(c *gardener.ContainerRuntime) { c.Spec.Type = "kata" }), runtimeOf(nil)), memory{}, "spec.type: Forbidden"},
		"a finalizer that goes":      {runtimesOf, request(t, review.Update, ofRuntime, runtimeOf(func(c *gardener.ContainerRuntime) { c.DeletionTimestamp = &now }), runtimeOf(func(c *gardener.ContainerRuntime) { c.DeletionTimestamp = &now; c.Finalizers = []string{"x"} })), memory{}, ""},
		"a change while it goes":     {runtimesOf, request(t, review.Update, ofRuntime, runtimeOf(func(c *gardener.ContainerRuntime) { c.DeletionTimestamp = &now; c.Spec.BinaryPath = "/x" }), runtimeOf(func(c *gardener.ContainerRuntime) { c.DeletionTimestamp = &now })), memory{}, "spec: Forbidden"},
		"a shoot":                    {shootsOf, request(t, review.Create, ofShoot, shoot("1.33.1"), nil), memory{}, "spec.provider.workers[0].machine.type"},
		"a shoot that was wrong":     {shootsOf, request(t, review.Update, ofShoot, shoot("1.33.2"), shoot("1.33.1")), memory{}, ""},
		"a class that pods use":      {deletionsOf, request(t, review.Delete, ofClass, nil, ours), memory{users: []string{"a/b"}}, "1 pods use it"},
		"a class that nobody uses":   {deletionsOf, request(t, review.Delete, ofClass, nil, ours), memory{}, ""},
		"a class of somebody else":   {deletionsOf, request(t, review.Delete, ofClass, nil, foreign), memory{users: []string{"a/b"}}, ""},
		"a class that is not going":  {deletionsOf, request(t, review.Create, ofClass, ours, nil), memory{users: []string{"a/b"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Rules{Plugins: plugins.All(), Cluster: &test.cluster}
			got, err := test.ask(r)(t.Context(), test.request)
			if err != nil {
				t.Fatal(err)
			}
			if test.refused == "" && got.Refused != nil || test.refused != "" && (got.Refused == nil || !strings.Contains(got.Refused.Error(), test.refused)) {
				t.Errorf("refused: %v", got.Refused)
			}
		})
	}
}

// kubelet is a node of a group.
func kubelet(version, group string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": group}}}
	n.Status.NodeInfo.KubeletVersion = version
	return n
}

// flatcar is a node on which nobody can write below /usr.
func flatcar(group string) *corev1.Node {
	n := kubelet("v1.37.0", group)
	n.Status.NodeInfo.OSImage = "Flatcar Container Linux by Kinvolk 4230.2.1 (Oklo)"
	return n
}

// small makes of a pool one for Kata Containers on machines that cannot, by their name.
func small(p *v1alpha1.WorkerPool) {
	p.Spec.Provider, p.Spec.MachineType, p.Spec.CRI.ContainerRuntimes[0].Type = "aws", "m5.large", "kata-containers"
}

// able is a node on which Node Feature Discovery has found that it can.
func able(group string) *corev1.Node {
	n := kubelet("v1.37.0", group)
	n.Labels[corev1.LabelArchStable], n.Labels["feature.node.kubernetes.io/cpu-cpuid.VMX"] = "amd64", "true"
	return n
}

// Where nothing tells how old kubelets are, what is assumed is said.
func TestKubeletsOfNobodyKnowsWhich(t *testing.T) {
	for name, test := range map[string]struct {
		cluster memory
		pool    *v1alpha1.WorkerPool
		says    bool
	}{
		"nothing is known":  {memory{}, pool(nil), true},
		"nodes tell":        {memory{nodes: []*corev1.Node{kubelet("v1.37.0", "b")}}, pool(nil), false},
		"the server tells":  {memory{version: "v1.37.0"}, pool(nil), false},
		"the pool says it":  {memory{}, pool(func(p *v1alpha1.WorkerPool) { p.Spec.KubernetesVersion = "1.37.0" }), false},
		"it has no runtime": {memory{}, pool(func(p *v1alpha1.WorkerPool) { p.Spec.CRI.ContainerRuntimes = nil }), false},
	} {
		r := &Rules{Plugins: plugins.All(), Cluster: &test.cluster}
		got, err := r.Pools(t.Context(), request(t, review.Create, ofPool, test.pool, nil))
		if err != nil || got.Refused != nil {
			t.Fatalf("%s: %v %v", name, got.Refused, err)
		}
		said := strings.Contains(strings.Join(got.Warnings, "\n"), "the version of the API server is not known (the way is blocked), so that Kubernetes 1.16 or newer is assumed")
		if said != test.says {
			t.Errorf("%s: %q", name, got.Warnings)
		}
	}
}

func poolsOf(r *Rules) func(context.Context, *review.Request) (review.Answer, error) { return r.Pools }

func payloadsOf(r *Rules) func(context.Context, *review.Request) (review.Answer, error) {
	return r.Payloads
}

func runtimesOf(r *Rules) func(context.Context, *review.Request) (review.Answer, error) {
	return r.Runtimes
}

func shootsOf(r *Rules) func(context.Context, *review.Request) (review.Answer, error) {
	return r.Shoots
}

func deletionsOf(r *Rules) func(context.Context, *review.Request) (review.Answer, error) {
	return r.ClassDeletions
}

// What cannot be known is no answer, and what is about another kind none either.
func TestNoAnswer(t *testing.T) {
	r := &Rules{Plugins: plugins.All(), Cluster: &memory{err: errors.New("away")}}
	for name, ask := range map[string]func() (review.Answer, error){
		"pool": func() (review.Answer, error) {
			return r.Pools(t.Context(), request(t, review.Create, ofPool, pool(nil), nil))
		},
		"runtime": func() (review.Answer, error) {
			return r.Runtimes(t.Context(), request(t, review.Create, ofRuntime, runtimeOf(nil), nil))
		},
		"kind": func() (review.Answer, error) {
			return r.Pools(t.Context(), request(t, review.Create, ofShoot, pool(nil), nil))
		},
		"empty": func() (review.Answer, error) {
			return r.Shoots(t.Context(), request(t, review.Create, ofShoot, nil, nil))
		},
	} {
		if got, err := ask(); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
