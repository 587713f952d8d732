package podspec

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// resources makes them of words: a CPU request and limit, a memory request and
// limit; "-" for none.
func resources(words ...string) corev1.ResourceRequirements {
	out := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for i, w := range words {
		if w != "-" {
			[]corev1.ResourceList{out.Requests, out.Limits}[i%2][[]corev1.ResourceName{"cpu", "memory"}[i/2]] = resource.MustParse(w)
		}
	}
	return out
}

func runsWith(r *runtimeapi.LinuxContainerResources) *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{Resources: &runtimeapi.ContainerResources{Linux: r}}
}

// TestResourcesOf wants the spec back from what it came to, and what the runtime has
// where that is something else.
func TestResourcesOf(t *testing.T) {
	for name, tt := range map[string]struct {
		spec corev1.ResourceRequirements
		has  *runtimeapi.LinuxContainerResources
		want *corev1.ResourceRequirements
	}{
		"nothing is told":       {resources("1"), nil, nil},
		"nothing in it":         {resources("1"), &runtimeapi.LinuxContainerResources{OomScoreAdj: 3}, nil},
		"more CPU is asked":     {resources("333m", "-"), &runtimeapi.LinuxContainerResources{CpuShares: 256, CpuPeriod: 100000}, ptr(resources("250m"))},
		"a limit is new":        {resources("250m", "500m"), &runtimeapi.LinuxContainerResources{CpuShares: 256, CpuPeriod: 100000}, ptr(resources("250m"))},
		"a limit is gone":       {resources("250m", "-"), &runtimeapi.LinuxContainerResources{CpuShares: 256, CpuQuota: 50000, CpuPeriod: 100000}, ptr(resources("250m", "500m"))},
		"-1 is no limit":        {resources("250m"), &runtimeapi.LinuxContainerResources{CpuShares: 256, CpuQuota: -1, MemoryLimitInBytes: -1}, ptr(resources("250m"))},
		"another period":        {resources("-", "500m"), &runtimeapi.LinuxContainerResources{CpuShares: 512, CpuQuota: 5000, CpuPeriod: 10000}, ptr(resources("-", "500m"))},
		"a limit of memory":     {resources("250m", "-", "1Mi", "2Mi"), &runtimeapi.LinuxContainerResources{CpuShares: 256, MemoryLimitInBytes: 1 << 20}, ptr(resources("250m", "-", "1Mi", "1Mi"))},
		"memory in whole pages": {resources("250m", "-", "-", "1000000"), &runtimeapi.LinuxContainerResources{CpuShares: 256, MemoryLimitInBytes: 999424}, ptr(resources("250m", "-", "-", "1000000"))},
		"all is gone":           {resources(), &runtimeapi.LinuxContainerResources{CpuShares: 1024, CpuQuota: 100000, CpuPeriod: 100000, MemoryLimitInBytes: 1 << 20}, ptr(resources("1", "1", "-", "1Mi"))},
	} {
		c := testContext(corev1.Container{Resources: tt.spec})
		s := runsWith(tt.has)
		if tt.has == nil {
			s.Resources = nil
		}
		if got := ResourcesOf(c, &c.Pod.Spec.Containers[0], s); !equality.Semantic.DeepEqual(got, tt.want) {
			t.Errorf("%s: %s", name, cmp.Diff(tt.want, got))
		}
	}
}

// FuzzResize wants a pod of any resources to be as it should be once it was resized:
// else it would be again and again.
func FuzzResize(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 2))
		quantity := func(unit string) string {
			if r.IntN(4) == 0 {
				return "-"
			}
			return fmt.Sprint(r.Int64N(1<<r.IntN(40))+1, unit)
		}
		chance := func() corev1.ResourceRequirements {
			return resources(quantity("m"), quantity("m"), quantity(""), quantity("Ki"))
		}
		c := testContext(corev1.Container{Resources: chance()})
		if r.IntN(3) == 0 {
			c.Pod.Spec.Resources = ptr(chance())
		}
		ct := &c.Pod.Spec.Containers[0]
		made := Resources(c, ct)
		if got := ResourcesOf(c, ct, runsWith(made)); !equality.Semantic.DeepEqual(*got, ct.Resources) {
			t.Fatalf("new: %s", cmp.Diff(ct.Resources, *got))
		}
		before := ct.Resources
		ct.Resources = chance()
		if got := ResourcesOf(c, ct, runsWith(made)); c.Pod.Spec.Resources == nil && equality.Semantic.DeepEqual(*got, ct.Resources) && !cmp.Equal(made, Resources(c, ct), cmp.Comparer(sameLimits)) {
			t.Fatalf("nobody sees the change from %v to %v", before, ct.Resources)
		}
		asked := Resize(c, ct, "id").GetLinux()
		if asked.CpuQuota == 0 || asked.MemoryLimitInBytes == 0 || asked.CpuShares < 2 {
			t.Fatalf("the runtime is asked to leave something: %v", asked)
		}
		if got := ResourcesOf(c, ct, runsWith(asked)); !equality.Semantic.DeepEqual(*got, ct.Resources) {
			t.Fatalf("resized: %s", cmp.Diff(ct.Resources, *got))
		}
	})
}

func sameLimits(a, b *runtimeapi.LinuxContainerResources) bool {
	return a.CpuShares == b.CpuShares && a.CpuQuota == b.CpuQuota && a.MemoryLimitInBytes == b.MemoryLimitInBytes
}

func TestHugePagesAndSwap(t *testing.T) {
	r := resources("100m", "-", "2Gi", "4Gi")
	r.Limits["hugepages-2Mi"] = resource.MustParse("10Mi")
	c := testContext(corev1.Container{Resources: r})
	ct := &c.Pod.Spec.Containers[0]
	if got := fmt.Sprint(Resources(c, ct).HugepageLimits, Resources(c, ct).Unified); got != fmt.Sprint([]*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 10 << 20}}, map[string]string(nil)) {
		t.Error(got)
	}
	c.Node.HugePageSizes, c.Node.Swap = []string{"2MB", "1GB"}, Swap{Counted: true, Bytes: 4 << 30}
	pages := Resources(c, ct).HugepageLimits
	if len(pages) != 2 || pages[0].PageSize != "1GB" || pages[0].Limit != 0 || pages[1].Limit != 10<<20 {
		t.Error(pages)
	}
	static := map[string]string{annotationSource: "file"}
	for name, tt := range map[string]struct {
		change func()
		want   string
	}{
		"no swap":                   {func() { c.Node.Swap.Limited = false }, "0"},
		"its share":                 {func() {}, fmt.Sprint(1 << 30)}, // 2 of 8 GiB of memory, of 4 GiB of swap
		"all of it":                 {func() { ct.Resources.Requests["memory"] = resource.MustParse("4Gi") }, "0"},
		"too much":                  {func() { ct.Resources.Requests["memory"] = resource.MustParse("9Gi") }, "0"},
		"guaranteed":                {func() { ct.Resources = resources("1", "1", "4Gi", "4Gi") }, "0"},
		"best effort":               {func() { ct.Resources = resources() }, "0"},
		"critical":                  {func() { c.Pod.Spec.Priority = ptr[int32](2_000_000_000) }, "0"},
		"static":                    {func() { c.Pod.Annotations = static }, "0"},
		"of a manifest, as all are": {func() { c.Pod.Annotations, c.Node.Swap.Manifests = static, true }, fmt.Sprint(1 << 30)},
		"critical among those": {func() {
			c.Pod.Annotations, c.Node.Swap.Manifests, c.Pod.Spec.Priority = static, true, ptr[int32](2_000_000_000)
		}, "0"},
	} {
		ct.Resources, c.Node.Swap.Limited, c.Node.Swap.Manifests = resources("100m", "-", "2Gi", "4Gi"), true, false
		c.Pod.Spec.Priority, c.Pod.Annotations = nil, nil
		tt.change()
		if got := Resources(c, ct).Unified["memory.swap.max"]; got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
	c.Node.GroupOOM = true
	if got := Resources(c, ct).Unified["memory.oom.group"]; got != "1" {
		t.Errorf("memory.oom.group is %q", got)
	}
	for bytes, want := range map[int64]string{2 << 20: "2MB", 1 << 30: "1GB", 64 << 10: "64KB", 16 << 30: "16GB", 1 << 40: "1024GB"} {
		if got := pageSize(bytes); got != want {
			t.Errorf("%d: %s, want %s", bytes, got, want)
		}
	}
}

// TestPodLevel has resources of the pod as a whole (KEP-2837), and scores that go by
// more than a container's own memory.
func TestPodLevel(t *testing.T) {
	c := testContext(corev1.Container{Name: "a", Resources: resources("100m", "-", "1Gi")})
	c.Pod.Spec.Containers = append(c.Pod.Spec.Containers, corev1.Container{Name: "b"})
	c.Pod.Spec.Resources = ptr(resources("1", "2", "4Gi", "4Gi"))
	if q := QOS(c.Pod); q != corev1.PodQOSBurstable {
		t.Error(q)
	}
	for i, want := range []string{"102 200000 4294967296 688", "2048 200000 4294967296 813"} { // 3 GiB to spare for two: 2.5 and 1.5 of 8 GiB
		r := Resources(c, &c.Pod.Spec.Containers[i])
		if got := fmt.Sprint(r.CpuShares, r.CpuQuota, r.MemoryLimitInBytes, r.OomScoreAdj); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if r := Sandbox(c).Linux.Resources; r.CpuShares != 1024 || r.CpuQuota != 200_000 || r.MemoryLimitInBytes != 4<<30 {
		t.Error(r)
	}
	c.Pod.Spec.Resources = ptr(resources("1", "1", "4Gi", "4Gi"))
	if q := QOS(c.Pod); q != corev1.PodQOSGuaranteed {
		t.Error(q)
	}
	c.Pod.Spec.Resources = nil
	sidecar := corev1.Container{Name: "s", RestartPolicy: ptr(corev1.ContainerRestartPolicyAlways), Resources: resources("1m")}
	c.Pod.Spec.InitContainers = []corev1.Container{sidecar}
	c.Pod.Spec.Containers = c.Pod.Spec.Containers[:1]
	if got := Resources(c, &sidecar).OomScoreAdj; got != 875 {
		t.Errorf("the sidecar of a container with an eighth of the memory has %d", got)
	}
	c.Pod.Spec.PriorityClassName, c.Pod.Spec.Priority = "system-node-critical", ptr[int32](2_000_001_000)
	if got := Resources(c, &sidecar).OomScoreAdj; got != -997 {
		t.Errorf("a critical pod has %d", got)
	}
	for source, want := range map[string]bool{"": false, "api": false, "file": true} {
		if got := Critical(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"kubernetes.io/config.source": source}}}); got != want {
			t.Errorf("of %q: %v", source, got)
		}
	}
}
