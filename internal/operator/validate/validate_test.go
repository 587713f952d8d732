package validate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	gardener "fairlead.run/api/gardener/v1alpha1"
	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/installer/fault"
	"fairlead.run/internal/installer/profile"
	"fairlead.run/internal/operator/placed"
	"fairlead.run/internal/operator/plugins"
)

func release(typ, handler string) *v1alpha1.RuntimePayload {
	sum := strings.Repeat("ab", 32)
	return &v1alpha1.RuntimePayload{
		ObjectMeta: metav1.ObjectMeta{Name: typ},
		Spec: v1alpha1.RuntimePayloadSpec{
			Image: "registry.example/" + typ + "@sha256:" + sum,
			Manifest: payload.RuntimePayload{
				APIVersion: payload.APIVersion, Kind: payload.KindPayload, Type: typ, Version: "1", OS: "linux", Architectures: []string{"amd64"},
				Files:    []payload.File{{Path: "shim", Mode: "0755", Size: 1, SHA256: sum}},
				Configs:  []payload.Config{{Path: "runsc.toml", Content: "binary_name = \"x\"\n"}},
				Handlers: []payload.Handler{{Name: handler, Containerd: &payload.ContainerdHandler{RuntimeType: "io.containerd.x.v1", RuntimePath: "shim"}}},
			},
		},
	}
}

func known() Known {
	return Known{
		Plugins: plugins.All(),
		Payload: func(typ string) *v1alpha1.RuntimePayload {
			return map[string]*v1alpha1.RuntimePayload{"gvisor": release("gvisor", "runsc"), "kata-containers": release("kata-containers", "kata-qemu")}[typ]
		},
		Foreign: func(string) string { return "" },
	}
}

// twoHandlers is a payload of Kata with kata-qemu for both CRI runtimes, and kata-clh for
// containerd alone.
func twoHandlers(string) *v1alpha1.RuntimePayload {
	both := release("kata-containers", "kata-qemu")
	both.Spec.Manifest.Handlers[0].CRIO = &payload.CRIOHandler{RuntimeType: "oci", RuntimePath: "shim"}
	both.Spec.Manifest.Handlers = append(both.Spec.Manifest.Handlers, release("kata-containers", "kata-clh").Spec.Manifest.Handlers...)
	return both
}

func poolOf(types ...string) *v1alpha1.WorkerPool {
	p := &v1alpha1.WorkerPool{
		ObjectMeta: metav1.ObjectMeta{Name: "sandboxed"},
		Spec: v1alpha1.WorkerPoolSpec{
			NodeSelector: map[string]string{"pool": "sandboxed"}, Provider: "aws", MachineType: "m5.metal", MachineImage: v1alpha1.MachineImage{Name: "ubuntu", Version: "24.04"},
			Architecture: "amd64", KubernetesVersion: "1.37.2", CRI: v1alpha1.CRI{Name: v1alpha1.CRIContainerd},
		},
	}
	for _, t := range types {
		p.Spec.CRI.ContainerRuntimes = append(p.Spec.CRI.ContainerRuntimes, v1alpha1.PoolRuntime{Type: t})
	}
	return p
}

// config is a providerConfig.
func config(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }

// expect compares faults by their beginnings, and has each say what to change.
func expect(t *testing.T, got field.ErrorList, want ...string) {
	t.Helper()
	var lines []string
	for _, f := range got {
		lines = append(lines, f.Error())
		if f.Detail == "" && f.Type != field.ErrorTypeDuplicate {
			t.Errorf("%s: no sentence", f)
		}
	}
	if len(lines) != len(want) {
		t.Fatalf("faults: %q\nwanted: %q", lines, want)
	}
	for i, w := range want {
		path, words, _ := strings.Cut(w, " ")
		if !strings.HasPrefix(lines[i], path+": ") || !strings.Contains(lines[i], words) {
			t.Errorf("fault %q\nwanted %q", lines[i], w)
		}
	}
}

func TestPool(t *testing.T) {
	for name, test := range map[string]struct {
		pool   *v1alpha1.WorkerPool
		change func(*v1alpha1.WorkerPool, *Known)
		want   []string
		warns  string
	}{
		"nothing asked for":               {pool: poolOf()},
		"both":                            {pool: poolOf("gvisor", "kata")},
		"unknown type":                    {pool: poolOf("wasm"), want: []string{`spec.cri.containerRuntimes[0].type "gvisor", "kata-containers (kata)"`}},
		"no type":                         {pool: poolOf(""), want: []string{"spec.cri.containerRuntimes[0].type name the runtime"}},
		"twice":                           {pool: poolOf("gvisor", "gvisor"), want: []string{"spec.cri.containerRuntimes[1].type is the same runtime as spec.cri.containerRuntimes[0].type"}},
		"twice by an alias":               {pool: poolOf("kata", "kata-containers"), want: []string{"spec.cri.containerRuntimes[1].type is the same runtime"}},
		"old Kubernetes":                  {pool: poolOf("gvisor"), change: func(p *v1alpha1.WorkerPool, _ *Known) { p.Spec.KubernetesVersion = "1.13.9" }, want: []string{`spec.kubernetesVersion "1.13.9": pods can choose a container runtime from Kubernetes 1.14 on`}},
		"old Kubernetes without runtimes": {pool: poolOf(), change: func(p *v1alpha1.WorkerPool, _ *Known) { p.Spec.KubernetesVersion = "1.13.9" }},
		"old kubelets": {pool: poolOf("gvisor"), change: func(p *v1alpha1.WorkerPool, k *Known) {
			p.Spec.KubernetesVersion, k.Kubelet = "", "v1.13.9"
		}, want: []string{`spec.kubernetesVersion "v1.13.9": pods can choose a container runtime from Kubernetes 1.14 on`}},
		"old kubelets, and a version": {pool: poolOf("gvisor"), change: func(_ *v1alpha1.WorkerPool, k *Known) { k.Kubelet = "v1.13.9" }},
		"kubelets of nobody knows which": {pool: poolOf("gvisor"), change: func(p *v1alpha1.WorkerPool, k *Known) {
			p.Spec.KubernetesVersion, k.Unknown = "", "it has no nodes, and nobody tells"
		}, warns: "spec.kubernetesVersion: it has no nodes, and nobody tells, so that Kubernetes 1.16 or newer is assumed"},
		"no kubelets and no runtimes": {pool: poolOf(), change: func(p *v1alpha1.WorkerPool, k *Known) {
			p.Spec.KubernetesVersion, k.Unknown = "", "it has no nodes, and nobody tells"
		}},
		"Kubernetes without overhead": {pool: poolOf("gvisor"), change: func(p *v1alpha1.WorkerPool, _ *Known) { p.Spec.KubernetesVersion = "1.15.0" }, warns: "1.16"},
		"no version":                  {pool: poolOf("gvisor"), change: func(p *v1alpha1.WorkerPool, _ *Known) { p.Spec.KubernetesVersion = "new" }, want: []string{"spec.kubernetesVersion is no version"}},
		"unknown CRI":                 {pool: poolOf("gvisor"), change: func(p *v1alpha1.WorkerPool, _ *Known) { p.Spec.CRI.Name = "docker" }, want: []string{`spec.cri.name "containerd", "crio"`, `spec.cri.containerRuntimes[0].type no handler of the RuntimePayload gvisor runs below docker`}},
		"CRI without a handler":       {pool: poolOf("gvisor"), change: func(p *v1alpha1.WorkerPool, _ *Known) { p.Spec.CRI.Name = "crio" }, want: []string{"spec.cri.containerRuntimes[0].type no handler of the RuntimePayload gvisor runs below crio"}},
		"CRI without a handler that is asked for": {pool: poolOf("kata"), change: func(p *v1alpha1.WorkerPool, k *Known) {
			k.Payload = twoHandlers
			p.Spec.CRI.Name, p.Spec.CRI.ContainerRuntimes[0].ProviderConfig = "crio", config(`{"handlers":["kata-qemu","kata-clh"]}`)
		}, want: []string{"spec.cri.containerRuntimes[0].providerConfig handlers kata-clh of the RuntimePayload kata-containers do not run below crio"}},
		"CRI with one of the handlers": {pool: poolOf("kata"), change: func(p *v1alpha1.WorkerPool, k *Known) {
			k.Payload = twoHandlers
			p.Spec.CRI.Name = "crio"
		}},
		"CRI that an image has not": {pool: poolOf("gvisor"), change: func(p *v1alpha1.WorkerPool, k *Known) {
			p.Spec.CRI.Name, p.Spec.MachineImage.Name, k.Payload = "crio", "flatcar", nil
		}, want: []string{"spec.cri.name flatcar comes with containerd only"}},
		"image that cannot":             {pool: poolOf("gvisor"), change: func(p *v1alpha1.WorkerPool, _ *Known) { p.Spec.MachineImage.Name = "bottlerocket" }, want: []string{"spec.machineImage.name no runtimes can be installed there"}},
		"image that nobody knows":       {pool: poolOf("gvisor"), change: func(p *v1alpha1.WorkerPool, _ *Known) { p.Spec.MachineImage.Name = "plan9" }, warns: "nothing is known of the operating system plan9"},
		"machine that cannot":           {pool: poolOf("kata"), change: func(p *v1alpha1.WorkerPool, _ *Known) { p.Spec.MachineType = "m5.large" }, want: []string{"spec.machineType choose one such as m5.metal"}},
		"machine of the 8th generation": {pool: poolOf("kata"), change: func(p *v1alpha1.WorkerPool, _ *Known) { p.Spec.MachineType = "m8i.large" }, warns: "nested virtualisation is turned on"},
		"machine that nobody knows":     {pool: poolOf("kata"), change: func(p *v1alpha1.WorkerPool, _ *Known) { p.Spec.MachineType = "n2-standard-4" }, warns: "/dev/kvm"},
		"machine of another provider": {pool: poolOf("kata"), change: func(p *v1alpha1.WorkerPool, _ *Known) {
			p.Spec.Provider, p.Spec.MachineType = "openstack", "m1.large"
		}, warns: "nothing is known of machines of type m1.large"},
		"machine of nobody knows whom": {pool: poolOf("kata"), change: func(p *v1alpha1.WorkerPool, _ *Known) {
			p.Spec.Provider, p.Spec.MachineType = "", "m5.large"
		}, warns: "spec.machineType: nobody says whose machines of type m5.large are"},
		"machine of nobody for gVisor": {pool: poolOf("gvisor"), change: func(p *v1alpha1.WorkerPool, _ *Known) { p.Spec.Provider = "" }},
		"architecture":                 {pool: poolOf("gvisor"), change: func(p *v1alpha1.WorkerPool, _ *Known) { p.Spec.Architecture = "arm64" }, want: []string{"spec.architecture has programs for amd64 only"}},
		"no payload": {pool: poolOf("gvisor"), change: func(_ *v1alpha1.WorkerPool, k *Known) {
			k.Payload = func(string) *v1alpha1.RuntimePayload { return nil }
		}, warns: "there is no RuntimePayload gvisor"},
		"class of another, which the CRI cannot have": {pool: poolOf("kata"), change: func(p *v1alpha1.WorkerPool, k *Known) {
			p.Spec.CRI.Name, k.Payload = "crio", twoHandlers
			k.Foreign = func(c string) string { return map[string]string{"kata-clh": "somebody's"}[c] }
		}},
		"class of another": {pool: poolOf("gvisor"), change: func(_ *v1alpha1.WorkerPool, k *Known) { k.Foreign = func(c string) string { return "somebody's " + c } }, want: []string{"spec.cri.containerRuntimes[0].type it needs RuntimeClass gvisor, which is somebody's gvisor"}},
		"unknown flag": {pool: poolOf("gvisor"), change: func(p *v1alpha1.WorkerPool, _ *Known) {
			p.Spec.CRI.ContainerRuntimes[0].ProviderConfig = config(`{"configFlags":{"platfrom":"kvm"}}`)
		}, want: []string{`spec.cri.containerRuntimes[0].providerConfig.configFlags[platfrom] "platform"`}},
		"unknown field": {pool: poolOf("gvisor"), change: func(p *v1alpha1.WorkerPool, _ *Known) {
			p.Spec.CRI.ContainerRuntimes[0].ProviderConfig = config(`{"flags":{}}`)
		}, want: []string{"spec.cri.containerRuntimes[0].providerConfig the fields are apiVersion, kind, configFlags, overhead"}},
		"SIGHUP ends containerd":  {pool: poolOf("gvisor"), change: func(p *v1alpha1.WorkerPool, _ *Known) { p.Spec.Restart.Method = "sighup" }, want: []string{"spec.restart.method containerd ends by SIGHUP"}},
		"command that is missing": {pool: poolOf("gvisor"), change: func(p *v1alpha1.WorkerPool, _ *Known) { p.Spec.Restart.Method = "command" }, want: []string{"spec.restart.command is for the method command"}},
		"no selector":             {pool: poolOf("gvisor"), change: func(p *v1alpha1.WorkerPool, _ *Known) { p.Spec.NodeSelector = nil }, want: []string{"spec.nodeSelector give at least one label"}},
		"long name":               {pool: poolOf("gvisor"), change: func(p *v1alpha1.WorkerPool, _ *Known) { p.Name = strings.Repeat("a", 41) }, want: []string{"metadata.name becomes a part of labels"}},
		"labels of the operator": {pool: poolOf("gvisor"), change: func(p *v1alpha1.WorkerPool, _ *Known) {
			p.Spec.NodeSelector = map[string]string{"containerruntime.worker.gardener.cloud/gvisor": "true", "handler.fairlead.run/runsc": "gvisor", "pool": "a", "container.runtime.x": "true"}
		}, want: []string{"spec.nodeSelector[container.runtime.x] the operator writes it itself", "spec.nodeSelector[containerruntime.worker.gardener.cloud/gvisor] the operator writes it itself", "spec.nodeSelector[handler.fairlead.run/runsc] the operator writes it itself"}},
		"command of a folder": {pool: poolOf("gvisor"), change: func(p *v1alpha1.WorkerPool, _ *Known) {
			p.Spec.Restart = v1alpha1.Restart{Method: "command", Command: []string{"bin/bounce"}}
		}, want: []string{"spec.restart.command[0] give the absolute path"}},
		"command": {pool: poolOf("gvisor"), change: func(p *v1alpha1.WorkerPool, _ *Known) {
			p.Spec.Restart = v1alpha1.Restart{Method: "command", Command: []string{"systemctl", "restart", "a/b"}}
		}},
		"the same nodes": {pool: poolOf("gvisor"), change: func(p *v1alpha1.WorkerPool, k *Known) {
			o := *p.DeepCopy()
			o.Name = "other"
			k.Pools = []v1alpha1.WorkerPool{o}
		}, want: []string{"spec.nodeSelector WorkerPool other has the same one"}},
		"some of the same nodes": {pool: poolOf("gvisor"), change: func(p *v1alpha1.WorkerPool, k *Known) {
			o := *p.DeepCopy()
			o.Name = "other"
			o.Spec.NodeSelector = map[string]string{"a": "b"}
			k.Pools = []v1alpha1.WorkerPool{o}
		}, warns: "WorkerPool other"},
		"other nodes": {pool: poolOf("gvisor"), change: func(p *v1alpha1.WorkerPool, k *Known) {
			o := *p.DeepCopy()
			o.Name = "other"
			o.Spec.NodeSelector = map[string]string{"pool": "b"}
			k.Pools = []v1alpha1.WorkerPool{o}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			k := known()
			if test.change != nil {
				test.change(test.pool, &k)
			}
			got := k.Pool(test.pool)
			expect(t, got.Faults, test.want...)
			if all := strings.Join(got.Warnings, "\n"); test.warns == "" && all != "" || !strings.Contains(all, test.warns) {
				t.Errorf("warnings: %q", got.Warnings)
			}
		})
	}
	changed := poolOf("gvisor")
	changed.Spec.CRI.Name = v1alpha1.CRICRIO
	k := known()
	k.Payload = nil
	if got := k.PoolUpdate(changed, poolOf("gvisor")); len(got.Faults) != 1 || got.Faults[0].Field != "spec.cri.name" {
		t.Errorf("another CRI: %v", got.Faults)
	}
	elsewhere := poolOf("gvisor")
	elsewhere.Spec.MachineImage.Name = "flatcar"
	expect(t, k.PoolUpdate(elsewhere, poolOf("gvisor")).Faults, "spec.machineImage.name programs go to /var/bin on flatcar, and the nodes of this pool have them in /usr/bin")
	elsewhere.Spec.MachineImage.Name = "debian"
	expect(t, k.PoolUpdate(elsewhere, poolOf("gvisor")).Faults)
	elsewhere.Spec.MachineImage.Name = "flatcar"
	expect(t, k.PoolUpdate(elsewhere, poolOf()).Faults)
}

// There is one class for all pools, and the oldest of them decides.
func TestPoolsAgree(t *testing.T) {
	with := func(name, memory string, age int64) v1alpha1.WorkerPool {
		p := poolOf("gvisor")
		p.Name, p.Spec.NodeSelector = name, map[string]string{"pool": name}
		if age > 0 {
			p.CreationTimestamp = metav1.Unix(age, 0)
		}
		if memory != "" {
			p.Spec.CRI.ContainerRuntimes[0].ProviderConfig = config(`{"overhead":{"memory":"` + memory + `"}}`)
		}
		return *p
	}
	for name, test := range map[string]struct {
		pool, other v1alpha1.WorkerPool
		want        []string
		warns       string
	}{
		"a new one":        {pool: with("new", "64Mi", 0), other: with("old", "", 9), want: []string{"spec.cri.containerRuntimes[0].providerConfig RuntimeClass gvisor has the overhead that the older WorkerPool old gives it, memory=32Mi, and this pool wants memory=64Mi"}},
		"the younger":      {pool: with("b", "64Mi", 10), other: with("a", "48Mi", 9), want: []string{"spec.cri.containerRuntimes[0].providerConfig memory=48Mi"}},
		"the older":        {pool: with("a", "64Mi", 9), other: with("b", "48Mi", 10), warns: "WorkerPool b wants another one"},
		"of the same time": {pool: with("a", "64Mi", 9), other: with("b", "48Mi", 9), warns: "WorkerPool b wants another one"},
		"the same":         {pool: with("new", "64Mi", 0), other: with("old", "65536Ki", 9)},
	} {
		t.Run(name, func(t *testing.T) {
			k := known()
			k.Pools = []v1alpha1.WorkerPool{test.other, test.pool}
			got := k.Pool(&test.pool)
			expect(t, got.Faults, test.want...)
			if all := strings.Join(got.Warnings, "\n"); test.warns == "" && all != "" || !strings.Contains(all, test.warns) {
				t.Errorf("warnings: %q", got.Warnings)
			}
		})
	}
}

func asks(change func(*gardener.ContainerRuntime)) *gardener.ContainerRuntime {
	c := &gardener.ContainerRuntime{
		ObjectMeta: metav1.ObjectMeta{Name: "gvisor-a", Namespace: "team"},
		Spec: gardener.ContainerRuntimeSpec{Type: "gvisor", BinaryPath: "/var/bin", WorkerPool: gardener.ContainerRuntimeWorkerPool{
			Name: "a", Selector: metav1.LabelSelector{MatchLabels: map[string]string{gardener.LabelPool: "a"}},
		}},
	}
	if change != nil {
		change(c)
	}
	return c
}

func TestRuntime(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*gardener.ContainerRuntime)
		want   []string
	}{
		"good":            {},
		"somebody else's": {change: func(c *gardener.ContainerRuntime) { c.Spec.Type, c.Spec.ProviderConfig = "wasm", config(`{"any":1}`) }},
		"no type":         {change: func(c *gardener.ContainerRuntime) { c.Spec.Type = "" }, want: []string{"spec.type name the runtime"}},
		"no pool":         {change: func(c *gardener.ContainerRuntime) { c.Spec.WorkerPool.Name = "" }, want: []string{"spec.workerPool.name name the worker pool"}},
		"pool":            {change: func(c *gardener.ContainerRuntime) { c.Spec.WorkerPool.Name = "A" }, want: []string{"spec.workerPool.name becomes a part of labels"}},
		"every node":      {change: func(c *gardener.ContainerRuntime) { c.Spec.WorkerPool.Selector = metav1.LabelSelector{} }, want: []string{"spec.workerPool.selector an empty one would choose every node"}},
		"labels of the operator": {change: func(c *gardener.ContainerRuntime) {
			c.Spec.WorkerPool.Selector = metav1.LabelSelector{
				MatchLabels:      map[string]string{gardener.LabelPool: "a", "install.fairlead.run/gvisor": "install.a"},
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "zone", Operator: metav1.LabelSelectorOpExists}, {Key: "ready.fairlead.run/gvisor", Operator: metav1.LabelSelectorOpDoesNotExist}},
			}
		}, want: []string{"spec.workerPool.selector.matchLabels[install.fairlead.run/gvisor] the operator writes it itself", "spec.workerPool.selector.matchExpressions[1].key the operator writes it itself"}},
		"no path":          {change: func(c *gardener.ContainerRuntime) { c.Spec.BinaryPath = "" }, want: []string{"spec.binaryPath give the folder"}},
		"relative path":    {change: func(c *gardener.ContainerRuntime) { c.Spec.BinaryPath = "bin" }, want: []string{"spec.binaryPath give a clean absolute path"}},
		"path that climbs": {change: func(c *gardener.ContainerRuntime) { c.Spec.BinaryPath = "/var/../etc" }, want: []string{"spec.binaryPath give a clean absolute path"}},
		"root":             {change: func(c *gardener.ContainerRuntime) { c.Spec.BinaryPath = "/" }, want: []string{"spec.binaryPath give a folder below the root"}},
		"flags":            {change: func(c *gardener.ContainerRuntime) { c.Spec.ProviderConfig = config(`{"configFlags":{"debug":"yes"}}`) }, want: []string{`spec.providerConfig.configFlags[debug] give "true" or "false"`}},
	} {
		t.Run(name, func(t *testing.T) {
			r := known().Runtime(asks(test.change))
			expect(t, r.Faults, test.want...)
		})
	}
}

// Nobody can write below /usr on some systems, which a pool or its nodes tell.
func TestReadOnlyUsr(t *testing.T) {
	flatcar := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{gardener.LabelPool: "a"}}}
	flatcar.Status.NodeInfo.OSImage = "Flatcar Container Linux by Kinvolk 4230.2.1 (Oklo)"
	ubuntu, other := flatcar.DeepCopy(), flatcar.DeepCopy()
	ubuntu.Status.NodeInfo.OSImage, other.Labels = "Ubuntu 24.04.3 LTS", nil
	pool := v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.WorkerPoolSpec{MachineImage: v1alpha1.MachineImage{Name: "coreos"}}}
	elsewhere := *pool.DeepCopy()
	elsewhere.Name = "b"
	for name, test := range map[string]struct {
		path  string
		nodes []*corev1.Node
		pools []v1alpha1.WorkerPool
		want  []string
	}{
		"a node":         {path: "/usr/bin", nodes: []*corev1.Node{ubuntu, flatcar}, want: []string{"spec.binaryPath node n has Flatcar Container Linux by Kinvolk 4230.2.1 (Oklo), where /usr is read-only; give another folder, as in /var/bin"}},
		"/usr itself":    {path: "/usr", nodes: []*corev1.Node{flatcar}, want: []string{"spec.binaryPath node n has Flatcar"}},
		"a pool":         {path: "/usr/local/bin", pools: []v1alpha1.WorkerPool{pool}, want: []string{"spec.binaryPath WorkerPool a has the machine image coreos, where"}},
		"others":         {path: "/usr/bin", nodes: []*corev1.Node{ubuntu, other}, pools: []v1alpha1.WorkerPool{elsewhere}},
		"another folder": {path: "/usrbin", nodes: []*corev1.Node{flatcar}, pools: []v1alpha1.WorkerPool{pool}},
		"nobody tells":   {path: "/usr/bin"},
	} {
		t.Run(name, func(t *testing.T) {
			k := known()
			k.Nodes, k.Pools = test.nodes, test.pools
			expect(t, k.Runtime(asks(func(c *gardener.ContainerRuntime) { c.Spec.BinaryPath = test.path })).Faults, test.want...)
		})
	}
}

func TestRuntimeUpdate(t *testing.T) {
	k, now := known(), metav1.Now()
	r := k.RuntimeUpdate(asks(func(c *gardener.ContainerRuntime) {
		c.Spec.Type, c.Spec.WorkerPool.Name, c.Spec.BinaryPath = "kata", "b", "/opt/bin"
	}), asks(nil))
	expect(t, r.Faults, "spec.type it was gvisor", "spec.workerPool.name it was a", "spec.binaryPath it was")
	// It was changed while nobody looked: it may be changed back, and in all else.
	moved := asks(func(c *gardener.ContainerRuntime) { c.Spec.BinaryPath = "/opt/moved" })
	moved.Annotations = map[string]string{placed.Annotation: fmt.Sprintf(`{"type":"gvisor","pool":"a","binaryPath":%q}`, asks(nil).Spec.BinaryPath)}
	for path, want := range map[string][]string{"/opt/moved": nil, asks(nil).Spec.BinaryPath: nil, "/opt/again": {"spec.binaryPath it was " + asks(nil).Spec.BinaryPath}} {
		expect(t, k.RuntimeUpdate(asks(func(c *gardener.ContainerRuntime) { c.Spec.BinaryPath = path }), moved).Faults, want...)
	}
	deleted := asks(func(c *gardener.ContainerRuntime) { c.DeletionTimestamp = &now })
	r = k.RuntimeUpdate(asks(func(c *gardener.ContainerRuntime) { c.Spec.BinaryPath = "/opt" }), deleted)
	expect(t, r.Faults, "spec the object is being deleted")
	bad := asks(func(c *gardener.ContainerRuntime) { c.DeletionTimestamp, c.Spec.BinaryPath = &now, "/" })
	if r = k.RuntimeUpdate(bad.DeepCopy(), bad); len(r.Faults) > 0 {
		t.Errorf("a finalizer could not go: %v", r.Faults)
	}
	twin := k.RuntimeTwin(asks(nil), []gardener.ContainerRuntime{*asks(nil), *asks(func(c *gardener.ContainerRuntime) { c.Name = "other" })})
	if twin == nil || !strings.Contains(twin.Error(), "team/other") {
		t.Errorf("twin: %v", twin)
	}
	deleted.Name = "other"
	if twin = k.RuntimeTwin(asks(nil), []gardener.ContainerRuntime{*deleted}); twin != nil {
		t.Errorf("one that is about to go is in the way: %v", twin)
	}
}

func shoot(change func(*Shoot)) *Shoot {
	s := &Shoot{}
	s.Spec.Kubernetes.Version, s.Spec.Provider.Type = "1.33.2", "aws"
	w := Worker{Name: "a"}
	w.Machine.Type, w.Machine.Architecture = "i3.metal", "amd64"
	w.CRI = &struct {
		Name              v1alpha1.CRIName       `json:"name"`
		ContainerRuntimes []v1alpha1.PoolRuntime `json:"containerRuntimes"`
	}{Name: "containerd", ContainerRuntimes: []v1alpha1.PoolRuntime{{Type: "gvisor"}, {Type: "kata-containers"}}}
	s.Spec.Provider.Workers = []Worker{{Name: "plain"}, w}
	if change != nil {
		change(s)
	}
	return s
}

func TestShoot(t *testing.T) {
	k := Known{Plugins: plugins.All()}
	second := func(change func(*Worker)) func(*Shoot) { return func(s *Shoot) { change(&s.Spec.Provider.Workers[1]) } }
	for name, test := range map[string]struct {
		change func(*Shoot)
		want   []string
	}{
		"good":                 {},
		"somebody else's type": {change: second(func(w *Worker) { w.CRI.ContainerRuntimes[0].Type = "wasm" })},
		"machine of another provider": {change: func(s *Shoot) {
			s.Spec.Provider.Type, s.Spec.Provider.Workers[1].Machine.Type = "openstack", "m1.large"
		}},
		"machine of the seed":    {change: second(func(w *Worker) { w.Machine.Type = "m5.large" }), want: []string{"spec.provider.workers[1].machine.type choose one such as m5.metal"}},
		"Kubernetes of the seed": {change: func(s *Shoot) { s.Spec.Kubernetes.Version = "1.13.4" }, want: []string{`spec.kubernetes.version "1.13.4"`}},
		"Kubernetes of a group":  {change: second(func(w *Worker) { w.Kubernetes = &ShootKubernetes{"1.12.0"} }), want: []string{`spec.provider.workers[1].kubernetes.version "1.12.0"`}},
		"CRI-O":                  {change: second(func(w *Worker) { w.CRI.Name = "crio" }), want: []string{"spec.provider.workers[1].cri.name containerd"}},
		"no CRI":                 {change: second(func(w *Worker) { w.CRI.Name = "" }), want: []string{"spec.provider.workers[1].cri.name below a CRI runtime; give containerd"}},
		"a CRI that is none":     {change: second(func(w *Worker) { w.CRI.Name = "docker" }), want: []string{`spec.provider.workers[1].cri.name supported values: "containerd"`}},
		"twice":                  {change: second(func(w *Worker) { w.CRI.ContainerRuntimes[0].Type = "kata" }), want: []string{"spec.provider.workers[1].cri.containerRuntimes[1].type is the same runtime"}},
		"providerConfig":         {change: second(func(w *Worker) { w.CRI.ContainerRuntimes[1].ProviderConfig = config(`{"handlers":["a","a"]}`) }), want: []string{"spec.provider.workers[1].cri.containerRuntimes[1].providerConfig.handlers[1] Duplicate"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := k.Shoot(shoot(test.change))
			expect(t, r.Faults, test.want...)
		})
	}
	bad := shoot(func(s *Shoot) { s.Spec.Kubernetes.Version = "1.13.4" })
	if r := k.ShootUpdate(bad, bad); len(r.Faults) > 0 {
		t.Errorf("what was wrong before may stay: %v", r.Faults)
	}
	// A group that stands elsewhere in the list is the same one, and so is a runtime.
	small := func(s *Shoot) { s.Spec.Provider.Workers[1].Machine.Type = "m5.large" }
	moved := shoot(func(s *Shoot) {
		small(s)
		slices.Reverse(s.Spec.Provider.Workers)
		slices.Reverse(s.Spec.Provider.Workers[0].CRI.ContainerRuntimes)
	})
	if r := k.ShootUpdate(moved, shoot(small)); len(r.Faults) > 0 {
		t.Errorf("what was wrong before has moved: %v", r.Faults)
	}
	again := shoot(func(s *Shoot) {
		small(s)
		w := s.Spec.Provider.Workers[1]
		w.Name = "b"
		s.Spec.Provider.Workers = []Worker{w, s.Spec.Provider.Workers[1]}
	})
	expect(t, k.ShootUpdate(again, shoot(small)).Faults, "spec.provider.workers[0].machine.type choose one")
	inPlace := second(func(w *Worker) {
		w.UpdateStrategy = "AutoInPlaceUpdate"
		w.CRI.Name, w.CRI.ContainerRuntimes = "containerd", nil
	})
	r := k.ShootUpdate(shoot(func(s *Shoot) { inPlace(s); s.Spec.Provider.Workers[1].CRI = nil }), shoot(inPlace))
	expect(t, r.Faults, `spec.provider.workers[1].cri.name it was "containerd"`)
	named := func(s *Shoot) { inPlace(s); s.Spec.Provider.Workers[1].CRI.Name = "" }
	if r := k.ShootUpdate(shoot(inPlace), shoot(named)); len(r.Faults) > 0 {
		t.Errorf("a name that a group is to have is refused: %v", r.Faults)
	}
	ending := "2026-01-01T00:00:00Z"
	if r := k.ShootUpdate(shoot(func(s *Shoot) { s.Spec.Kubernetes.Version, s.Metadata.DeletionTimestamp = "1.1", &ending }), shoot(nil)); len(r.Faults) > 0 {
		t.Errorf("a deletion is held up: %v", r.Faults)
	}
}

func TestRelease(t *testing.T) {
	p := release("gvisor", "runsc")
	if r := known().Release(p); len(r.Faults) > 0 {
		t.Error(r.Faults)
	}
	p.Name, p.Spec.Manifest.OS = "other", "windows"
	r := known().Release(p)
	expect(t, r.Faults, "spec.manifest.os linux", "spec.manifest.type has to be the name")
}

func TestBinaryPath(t *testing.T) {
	for name, want := range map[string]string{"ubuntu": "/usr/bin", "coreos": "/var/bin", "flatcar": "/var/bin", "suse-chost": "/usr/sbin", "plan9": "/opt/bin", "bottlerocket": "/opt/bin"} {
		if got := BinaryPath(name); got != want {
			t.Errorf("%s: %s, not %s", name, got, want)
		}
	}
	if all := supported(""); strings.Contains(all, "bottlerocket") || !slices.IsSorted(strings.Split(all, ", ")) {
		t.Error(all)
	}
}

// The table of images and the installer's profiles say the same of a system: where its
// programs go, and that nothing can be installed on it.
func TestImagesAreProfiles(t *testing.T) {
	for name, known := range images {
		system, err := profile.DetectOS(t.TempDir(), name)
		switch {
		case known.refused != "":
			if fault.Of(err) != payload.UnsupportedNode {
				t.Errorf("%s is refused for a pool, and by the installer: %v", name, err)
			}
		case err != nil || system.BinaryPath != known.binaries:
			t.Errorf("%s: programs of a pool go to %s, and the installer's to %s: %v", name, known.binaries, system.BinaryPath, err)
		}
	}
	open, shut := profile.Systems()
	for _, name := range slices.Concat(open, shut) {
		if known, ok := images[name]; !ok || (known.refused != "") != slices.Contains(shut, name) {
			t.Errorf("%s has a profile, and a pool has %+v", name, known)
		}
	}
}
