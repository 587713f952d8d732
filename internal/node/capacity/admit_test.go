package capacity

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

type edit func(*corev1.Pod)

func pod(name string, edits ...edit) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name, p.UID = name, types.UID(name)
	p.Spec.Containers = []corev1.Container{{Name: "a"}}
	for _, e := range edits {
		e(p)
	}
	return p
}

func asks(pairs ...string) edit {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = amounts(pairs...) }
}

func limitedTo(pairs ...string) edit {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = amounts(pairs...) }
}

func overhead(pairs ...string) edit {
	return func(p *corev1.Pod) { p.Spec.Overhead = amounts(pairs...) }
}

func important(n int32) edit { return func(p *corev1.Pod) { p.Spec.Priority = &n } }

func static(p *corev1.Pod) {
	p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
}

func hostPort(protocol corev1.Protocol, ip string, n int32) edit {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, corev1.ContainerPort{Protocol: protocol, HostIP: ip, HostPort: n})
	}
}

func node() *corev1.Node {
	n := &corev1.Node{}
	n.Name = "here"
	n.Labels = map[string]string{"disk": "ssd", corev1.LabelOSStable: "linux"}
	n.Status.Allocatable = amounts("cpu", "2", "memory", "2Gi", "ephemeral-storage", "10Gi", "pods", "3", "example.com/gpu", "1", "hugepages-2Mi", "4Mi")
	n.Spec.Taints = []corev1.Taint{
		{Key: "maintenance", Effect: corev1.TaintEffectNoExecute},
		{Key: "other", Effect: corev1.TaintEffectNoSchedule},
	}
	return n
}

func tolerates(p *corev1.Pod) {
	p.Spec.Tolerations = []corev1.Toleration{{Key: "maintenance", Operator: corev1.TolerationOpExists}}
}

func TestAdmit(t *testing.T) {
	half := pod("half", asks("cpu", "1", "memory", "1Gi"))
	web := pod("web", hostPort("", "", 80))
	local := pod("local", hostPort("", "127.0.0.1", 80))
	for _, tt := range []struct {
		name    string
		pod     *corev1.Pod
		running []*corev1.Pod
		want    string // empty: taken
		short   int
	}{
		{"nothing asked", pod("p", tolerates), nil, "", 0},
		{"just fits", pod("p", tolerates, asks("cpu", "1", "memory", "1Gi")), []*corev1.Pod{half}, "", 0},
		{
			"too much CPU", pod("p", tolerates, asks("cpu", "1001m")),
			[]*corev1.Pod{half},
			"OutOfcpu: Node didn't have enough resource: cpu, requested: 1001, used: 1000, capacity: 2000", 1,
		},
		{
			"overhead counts", pod("p", tolerates, asks("cpu", "1"), overhead("cpu", "1m")),
			[]*corev1.Pod{half},
			"OutOfcpu: Node didn't have enough resource: cpu, requested: 1001, used: 1000, capacity: 2000", 1,
		},
		{
			"a limit is a request", pod("p", tolerates, limitedTo("memory", "3Gi")),
			nil, "OutOfmemory: Node didn't have enough resource: memory, requested: 3221225472, used: 0, capacity: 2147483648", 1,
		},
		{"disk", pod("p", tolerates, asks("ephemeral-storage", "11Gi")), nil, "OutOfephemeral-storage", 1},
		{"a device", pod("p", tolerates, asks("example.com/gpu", "2")), nil, "OutOfexample.com/gpu: Node didn't have enough resource: example.com/gpu, requested: 2, used: 0, capacity: 1", 1},
		{"huge pages", pod("p", tolerates, asks("hugepages-2Mi", "6Mi")), nil, "OutOfhugepages-2Mi", 1},
		{"pages of a size that the kernel does not have", pod("p", tolerates, asks("hugepages-64Ki", "64Ki")), nil, "OutOfhugepages-64Ki", 1},
		{"of something that others account for", pod("p", tolerates, asks("example.com/licence", "2")), nil, "", 0},
		{
			"too many pods, and too much of all", pod("p", tolerates, asks("cpu", "3", "memory", "3Gi")),
			[]*corev1.Pod{pod("1"), pod("2"), pod("3")},
			"OutOfpods: Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3", 3,
		},
		{"nothing asked where all is taken", pod("p", tolerates), []*corev1.Pod{half, half}, "", 0},
		{"selector", pod("p", tolerates, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "hdd"} }), nil, "NodeAffinity: Predicate NodeAffinity failed", 0},
		{
			"affinity", pod("p", tolerates, func(p *corev1.Pod) {
				p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disk", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"ssd"}}}}},
				}}}
			}), nil, "NodeAffinity: ", 0,
		},
		{"another node", pod("p", tolerates, func(p *corev1.Pod) { p.Spec.NodeName = "there" }), nil, "NodeName: ", 0},
		{"another system by label", pod("p", tolerates, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelOSStable: "windows"} }), nil, "PodOSSelectorNodeLabelDoesNotMatch: ", 0},
		{"another system", pod("p", tolerates, func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }), nil, "PodOSNotSupported: ", 0},
		{"tainted", pod("p"), nil, "TaintToleration: Predicate TaintToleration failed", 0},
		{"tainted, but static", pod("p", static), nil, "", 0},
		{"a port that is taken", pod("p", tolerates, hostPort(corev1.ProtocolTCP, "", 80)), []*corev1.Pod{web}, "NodePorts: ", 0},
		{"a port of one address of all", pod("p", tolerates, hostPort("", "127.0.0.1", 80)), []*corev1.Pod{web}, "NodePorts: ", 0},
		{"all addresses of one", pod("p", tolerates, hostPort("", "0.0.0.0", 80)), []*corev1.Pod{local}, "NodePorts: ", 0},
		{"another address", pod("p", tolerates, hostPort("", "127.0.0.2", 80)), []*corev1.Pod{local}, "", 0},
		{"another protocol", pod("p", tolerates, hostPort(corev1.ProtocolUDP, "", 80)), []*corev1.Pod{web}, "", 0},
		{"no room, and not here anyway", pod("p", asks("cpu", "3")), nil, "OutOfcpu: ", 0},
	} {
		err := Admit(tt.pod, node(), tt.running)
		var r *Refusal
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: refused: %v", tt.name, err)
		case tt.want == "":
		case !errors.As(err, &r) || !strings.HasPrefix(err.Error(), tt.want):
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		case len(r.Short) != tt.short:
			t.Errorf("%s: short of %v, want %d resources", tt.name, r.Short, tt.short)
		}
	}
	if err := Admit(pod("p"), nil, nil); err == nil || !strings.HasPrefix(err.Error(), "InvalidNodeInfo: ") {
		t.Errorf("no node: %v", err)
	}
	if r := Unexpected(errors.New("no such device")); r.Error() != "UnexpectedAdmissionError: Allocate failed due to no such device, which is unexpected" {
		t.Errorf("unexpected: %v", r)
	}
}

func TestDisplace(t *testing.T) {
	younger := func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(time.Unix(1000, 0)) }
	older := func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(time.Unix(10, 0)) }
	for _, tt := range []struct {
		name    string
		pod     *corev1.Pod
		running []*corev1.Pod
		want    []string // nil: nothing makes room
	}{
		{
			"the lowest priority", pod("p", static, asks("cpu", "1")),
			[]*corev1.Pod{pod("high", important(10), asks("cpu", "1")), pod("low", asks("cpu", "1"))},
			[]string{"low"},
		},
		{
			"the lower class of equals", pod("p", static, asks("cpu", "1")),
			[]*corev1.Pod{pod("guaranteed", limitedTo("cpu", "1", "memory", "1Gi")), pod("burstable", asks("cpu", "1"))},
			[]string{"burstable"},
		},
		{
			"the younger of equals", pod("p", static, asks("cpu", "1")),
			[]*corev1.Pod{pod("old", older, asks("cpu", "1")), pod("young", younger, asks("cpu", "1"))},
			[]string{"young"},
		},
		{
			"no more than needed", pod("p", static, asks("cpu", "2")),
			[]*corev1.Pod{pod("small", asks("cpu", "100m")), pod("large", important(1), asks("cpu", "1900m"))},
			[]string{"small", "large"},
		},
		{
			"one that is enough spares the smaller", pod("p", static, asks("cpu", "1900m")),
			[]*corev1.Pod{pod("small", asks("cpu", "100m")), pod("large", important(1), asks("cpu", "1900m"))},
			[]string{"large"},
		},
		{
			"for a place", pod("p", static),
			[]*corev1.Pod{pod("1", important(2)), pod("2", important(1)), pod("3", important(3))},
			[]string{"2"},
		},
		{
			"for two resources", pod("p", static, asks("cpu", "1", "memory", "1Gi")),
			[]*corev1.Pod{pod("memory", asks("memory", "2Gi")), pod("cpu", asks("cpu", "2"))},
			[]string{"cpu", "memory"},
		},
		{
			"not those that are critical too", pod("p", static, asks("cpu", "1")),
			[]*corev1.Pod{pod("static", static, asks("cpu", "1")), pod("system", important(2_000_000_000), asks("cpu", "1"))},
			nil,
		},
		{"more than there is", pod("p", static, asks("cpu", "3")), []*corev1.Pod{pod("all", asks("cpu", "2"))}, nil},
		{"not for any pod", pod("p", tolerates, important(100), asks("cpu", "1")), []*corev1.Pod{pod("all", asks("cpu", "2"))}, nil},
		{
			"not if it does not help", pod("p", static, asks("cpu", "1"), func(p *corev1.Pod) { p.Spec.NodeName = "there" }),
			[]*corev1.Pod{pod("all", asks("cpu", "2"))},
			nil,
		},
	} {
		refused := Admit(tt.pod, node(), tt.running)
		if refused == nil {
			t.Errorf("%s: admitted without help", tt.name)
			continue
		}
		victims, err := Displace(tt.pod, refused, tt.running)
		var got []string
		for _, v := range victims {
			got = append(got, v.Name)
		}
		slices.Sort(got)
		slices.Sort(tt.want)
		if !slices.Equal(got, tt.want) || (err == nil) != (tt.want != nil) || err != nil && !errors.Is(err, refused) {
			t.Errorf("%s: %v, %v, want %v", tt.name, got, err, tt.want)
		}
	}
}

func TestResize(t *testing.T) {
	infeasible := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Reason: corev1.PodReasonInfeasible}}
	}
	for _, tt := range []struct {
		name         string
		pod          *corev1.Pod
		others       []*corev1.Pod
		reason, text string
	}{
		{"fits", pod("p", asks("cpu", "2")), nil, "", ""},
		{
			"not now", pod("p", asks("cpu", "2")),
			[]*corev1.Pod{pod("other", asks("cpu", "500m"))},
			"Deferred", "Node didn't have enough resource: cpu, requested: 2000, used: 500, capacity: 2000",
		},
		{
			"never", pod("p", asks("cpu", "3")),
			[]*corev1.Pod{pod("other", asks("cpu", "500m"))},
			"Infeasible", "Node didn't have enough capacity: cpu, requested: 3000, capacity: 2000",
		},
		{
			"asked again, and still never", pod("p", asks("cpu", "3"), infeasible), nil,
			"Infeasible", "Node didn't have enough capacity: cpu, requested: 3000, capacity: 2000",
		},
		{"static", pod("p", static), nil, "Infeasible", "In-place resize of static-pods is not supported"},
	} {
		if reason, text := Resize(tt.pod, node(), tt.others); reason != tt.reason || text != tt.text {
			t.Errorf("%s: %q %q, want %q %q", tt.name, reason, text, tt.reason, tt.text)
		}
	}
}

// Whatever is displaced is enough, none of it is too much, and all of it may go.
func FuzzDisplace(f *testing.F) {
	f.Add([]byte{10, 1, 20, 0, 5, 2}, uint8(15))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0}, uint8(0))
	f.Fuzz(func(t *testing.T, sizes []byte, wanted uint8) {
		var running []*corev1.Pod
		for i := 0; i+1 < len(sizes) && i < 40; i += 2 {
			running = append(running, pod(strconv.Itoa(i), asks("cpu", strconv.Itoa(int(sizes[i])*10)+"m"), important(int32(sizes[i+1]))))
		}
		critical := pod("p", static, asks("cpu", strconv.Itoa(int(wanted)*10)+"m"))
		refused := Admit(critical, node(), running)
		if refused == nil {
			return
		}
		victims, err := Displace(critical, refused, running)
		if err != nil {
			if Admit(critical, node(), nil) == nil {
				t.Fatalf("it fits the empty node, and nothing makes room: %v", err)
			}
			return
		}
		without := func(gone []*corev1.Pod) error {
			left := slices.DeleteFunc(slices.Clone(running), func(p *corev1.Pod) bool { return slices.Contains(gone, p) })
			return Admit(critical, node(), left)
		}
		if err := without(victims); err != nil {
			t.Fatalf("too few go: %v", err)
		}
		for i := range victims {
			if without(slices.Delete(slices.Clone(victims), i, i+1)) == nil {
				t.Fatalf("%s need not go", victims[i].Name)
			}
		}
	})
}
