package eviction

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

type edit func(*Pod)

// pod has one container, "app", that asks for what edits say.
func pod(name string, edits ...edit) Pod {
	p := Pod{Pod: &corev1.Pod{}, Measured: true, Volumes: map[string]Usage{}}
	p.Pod.Name, p.Pod.Namespace, p.Pod.UID = name, "default", types.UID(name)
	p.Pod.Spec.Containers = []corev1.Container{{Name: "app"}}
	p.Containers = []Container{{Name: "app"}}
	for _, e := range edits {
		e(&p)
	}
	return p
}

func asks(what corev1.ResourceName, n string) edit {
	return func(p *Pod) {
		p.Pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{what: resource.MustParse(n)}
	}
}

func limited(what corev1.ResourceName, n string) edit {
	return func(p *Pod) {
		p.Pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{what: resource.MustParse(n)}
	}
}

func memory(n int64) edit {
	return func(p *Pod) { p.Memory, p.Containers[0].Memory = n, n }
}

func important(n int32) edit { return func(p *Pod) { p.Pod.Spec.Priority = &n } }
func pids(n int64) edit      { return func(p *Pod) { p.Pids = n } }
func layer(n int64) edit     { return func(p *Pod) { p.Containers[0].Layer = Usage{n, n / 10} } }
func logs(n int64) edit      { return func(p *Pod) { p.Containers[0].Logs = Usage{n, n / 10} } }

func volume(name string, n int64, dir *corev1.EmptyDirVolumeSource) edit {
	return func(p *Pod) {
		p.Pod.Spec.Volumes = append(p.Pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: dir}})
		p.Volumes[name] = Usage{n, n / 10}
	}
}

func unmeasured(p *Pod) { p.Measured = false }

func static(p *Pod) { p.Pod.Annotations = map[string]string{"kubernetes.io/config.source": "file"} }

func TestRank(t *testing.T) {
	onDisk := &corev1.EmptyDirVolumeSource{}
	inMemory := &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}
	for _, tt := range []struct {
		name   string
		signal Signal
		layout Layout
		pods   []Pod
		want   string
	}{
		{
			"above the request before priority", MemoryAvailable, OneDisk,
			[]Pod{pod("low", memory(100), asks("memory", "200")), pod("high", important(9), memory(300), asks("memory", "200"))},
			"high low",
		},
		{
			"then priority", MemoryAvailable, OneDisk,
			[]Pod{pod("high", important(9), memory(900)), pod("low", memory(100))},
			"low high",
		},
		{
			"then how much above", AllocatableMemory, OneDisk,
			[]Pod{pod("most", memory(900), asks("memory", "800")), pod("more", memory(300), asks("memory", "100"))},
			"more most",
		},
		{
			"among those below their request, too", MemoryAvailable, OneDisk,
			[]Pod{pod("far", memory(100), asks("memory", "800")), pod("near", memory(700), asks("memory", "800"))},
			"near far",
		},
		{
			"a limit is a request", MemoryAvailable, OneDisk,
			[]Pod{pod("limited", memory(100), limited("memory", "200")), pod("free", memory(1))},
			"free limited",
		},
		{
			"critical pods never", MemoryAvailable, OneDisk,
			[]Pod{pod("static", static, memory(900)), pod("system", important(2_000_000_000), memory(900)), pod("a", memory(1))},
			"a",
		},
		{
			"not measured last of its priority", MemoryAvailable, OneDisk,
			[]Pod{pod("new", unmeasured), pod("old", memory(10), asks("memory", "20")), pod("high", important(1), memory(5), asks("memory", "10"))},
			"old new high",
		},
		{
			"processes by priority, then number", PIDAvailable, OneDisk,
			[]Pod{pod("few", pids(3)), pod("high", important(1), pids(900)), pod("many", pids(300))},
			"many few high",
		},
		{
			"all on one disk", NodefsAvailable, OneDisk,
			[]Pod{pod("layer", layer(20)), pod("all", layer(10), logs(10), volume("v", 10, onDisk)), pod("memory", volume("v", 900, inMemory))},
			"all layer memory",
		},
		{
			"the same disk by another name", ImagefsAvailable, OneDisk,
			[]Pod{pod("layer", layer(20)), pod("logs", logs(30))},
			"logs layer",
		},
		{
			"images apart: nodefs", NodefsAvailable, ImagesApart,
			[]Pod{pod("layer", layer(900)), pod("logs", logs(30)), pod("volume", volume("v", 40, onDisk))},
			"volume logs layer",
		},
		{
			"images apart: imagefs", ImagefsAvailable, ImagesApart,
			[]Pod{pod("layer", layer(20)), pod("logs", logs(900))},
			"layer logs",
		},
		{
			"only images apart", NodefsAvailable, OnlyImagesApart,
			[]Pod{pod("logs", logs(30)), pod("layer", layer(40))},
			"layer logs",
		},
		{
			"disk that was asked for", NodefsAvailable, OneDisk,
			[]Pod{pod("asked", layer(900), asks("ephemeral-storage", "1000")), pod("not", layer(10))},
			"not asked",
		},
		{
			"inodes nobody asks for", NodefsInodesFree, OneDisk,
			[]Pod{pod("few", layer(100), asks("ephemeral-storage", "1000")), pod("many", layer(500), asks("ephemeral-storage", "1000"))},
			"many few",
		},
	} {
		var got []string
		for _, p := range Rank(tt.pods, tt.signal, tt.layout) {
			got = append(got, p.Pod.Name)
		}
		if text := strings.Join(got, " "); text != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, text, tt.want)
		}
	}
}

func TestMessages(t *testing.T) {
	hard := Threshold{Signal: MemoryAvailable, Value: Value{Amount: resource.MustParse("100Mi")}}
	for _, tt := range []struct {
		name      string
		pod       Pod
		threshold Threshold
		seen      Observation
		want      string
		offenders string
	}{
		{
			"memory", pod("p", memory(300<<20), asks("memory", "200Mi")), hard,
			Observation{50<<20 + 17, 1 << 30},
			"The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. " +
				"Container app was using 300Mi, request is 200Mi, has larger consumption of memory. ", "app",
		},
		{
			"below its request", pod("p", memory(100), asks("memory", "200Mi")), hard,
			Observation{0, 1 << 30},
			"The node was low on resource: memory. Threshold quantity: 100Mi, available: 0. ", "",
		},
		{
			"disk by share", pod("p", layer(1<<20), logs(1<<20)),
			Threshold{Signal: NodefsAvailable, Value: Value{Share: 0.1}},
			Observation{1 << 20, 100 << 20},
			"The node was low on resource: ephemeral-storage. Threshold quantity: 10Mi, available: 1Mi. " +
				"Container app was using 2Mi, request is 0, has larger consumption of ephemeral-storage. ", "app",
		},
		{
			"processes", pod("p", pids(100)),
			Threshold{Signal: PIDAvailable, Value: amount(10)},
			Observation{9, 100},
			"The node was low on resource: pids. Threshold quantity: 10, available: 9. ", "",
		},
		{
			"inodes", pod("p", layer(100)),
			Threshold{Signal: NodefsInodesFree, Value: amount(10)},
			Observation{9, 100},
			"The node was low on resource: inodes. Threshold quantity: 10, available: 9. ", "",
		},
	} {
		e := low(tt.pod, tt.threshold, tt.seen)
		if e.Message != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, e.Message, tt.want)
		}
		if e.Signal != tt.threshold.Signal {
			t.Errorf("%s: the signal is %s", tt.name, e.Signal)
		}
		if e.Annotations["offending_containers"] != tt.offenders || e.Annotations["starved_resource"] != string(starved[tt.threshold.Signal]) {
			t.Errorf("%s: %v", tt.name, e.Annotations)
		}
	}
}

func TestExceeded(t *testing.T) {
	size := func(n string, m corev1.StorageMedium) *corev1.EmptyDirVolumeSource {
		q := resource.MustParse(n)
		return &corev1.EmptyDirVolumeSource{SizeLimit: &q, Medium: m}
	}
	for _, tt := range []struct {
		name  string
		pod   Pod
		want  string
		limit Signal
	}{
		{"no limits", pod("p", layer(900), logs(900), volume("v", 900, &corev1.EmptyDirVolumeSource{})), "", ""},
		{"a volume within its limit", pod("p", volume("v", 100, size("100", ""))), "", ""},
		{"a volume", pod("p", volume("v", 101, size("100", ""))), `Usage of EmptyDir volume "v" exceeds the limit "100". `, VolumeLimit},
		{"a volume in memory", pod("p", volume("v", 2<<20, size("1Mi", "Memory"))), `Usage of EmptyDir volume "v" exceeds the limit "1Mi". `, VolumeLimit},
		{"a limit of nothing is none", pod("p", volume("v", 101, size("0", ""))), "", ""},
		{
			"the pod by its last words", pod("p", limited("ephemeral-storage", "100"), layer(50), logs(40), func(p *Pod) { p.Files = Usage{20, 1} }),
			"Pod ephemeral local storage usage exceeds the total limit of containers 100. ", PodLimit,
		},
		{
			"the pod by a volume", pod("p", limited("ephemeral-storage", "100"), layer(50), logs(40), volume("v", 20, &corev1.EmptyDirVolumeSource{})),
			"Pod ephemeral local storage usage exceeds the total limit of containers 100. ", PodLimit,
		},
		{
			"a container", pod("p", limited("ephemeral-storage", "100"), layer(60), logs(50), func(p *Pod) {
				p.Pod.Spec.Containers = append(p.Pod.Spec.Containers, corev1.Container{Name: "b", Resources: p.Pod.Spec.Containers[0].Resources})
			}),
			`Container app exceeded its local ephemeral storage limit "100". `, ContainerLimit,
		},
	} {
		if limit, got := Exceeded(tt.pod); got != tt.want || limit != tt.limit {
			t.Errorf("%s: %q %q, want %q %q", tt.name, limit, got, tt.limit, tt.want)
		}
	}
}
