package classtable

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func amount(s string) resource.Quantity { return resource.MustParse(s) }

// overheads are written as "cpu=250m memory=64Mi". Of the faults, all are of a
// resource, but "!", which is the overhead as a whole.
//
// Larger: it is one table.
func overheads() []Case {
	table := []struct{ overhead, faults string }{
		{"", ""},
		{"cpu=250m", ""},
		{"cpu=0", ""},
		{"cpu=1", ""},
		{"cpu=1u", ""},
		{"cpu=1e3", ""},
		{"memory=64Mi", ""},
		{"memory=0", ""},
		{"memory=100m", ""},
		{"memory=8E", ""},
		{"ephemeral-storage=1Gi", ""},
		{"cpu=250m memory=64Mi ephemeral-storage=1Gi", ""},
		{"nvidia.com/gpu=1", ""},
		{"nvidia.com/gpu=0", ""},
		{"nvidia.com/gpu=1000m", ""},
		{"example.com/A_b.c=2", ""},
		{"kubernetes.io/foo=1", ""},
		{"kubernetes.io/foo=500m", ""},
		{"a.kubernetes.io/foo=1", ""},
		{domain(243) + "/a=1", ""},
		{"cpu=1 hugepages-2Mi=4Mi", ""},
		{"memory=1Gi hugepages-1Gi=0", ""},
		{"memory=1Gi hugepages-1Gi=2Gi hugepages-2Mi=2Mi", ""},
		{"cpu=-1", "cpu"},
		{"memory=-64Mi", "memory"},
		{"cpu=-1 memory=-1", "cpu memory"},
		{"cpu=-1m memory=64Mi", "cpu"},
		{"nvidia.com/gpu=-1", "nvidia.com/gpu"},
		{"nvidia.com/gpu=500m", "nvidia.com/gpu"},
		{"nvidia.com/gpu=-500m", "nvidia.com/gpu"},
		{"pods=1", "pods"},
		{"services=1", "services"},
		{"storage=1Gi", "storage"},
		{"foo=1", "foo"},
		{"CPU=1", "CPU"},
		{"requests.cpu=1", "requests.cpu"},
		{"limits.memory=1", "limits.memory"},
		{"requests.hugepages-2Mi=2Mi", "requests.hugepages-2Mi"},
		{"=1", ""},
		{"cpu!=1", "cpu!"},
		{"/gpu=1", "/gpu"},
		{"nvidia.com/=1", "nvidia.com/"},
		{"a/b/c=1", "a/b/c"},
		{"NVIDIA.com/gpu=1", "NVIDIA.com/gpu"},
		{"example.com/-a=1", "example.com/-a"},
		{x(64) + "=1", x(64)},
		{"example.com/" + x(64) + "=1", "example.com/" + x(64)},
		{"requests.nvidia.com/gpu=1", "requests.nvidia.com/gpu"},
		{domain(245) + "/a=1", domain(245) + "/a"},
		{"hugepages-2Mi=2Mi", "!"},
		{"hugepages-2Mi=2Mi ephemeral-storage=1", "!"},
		{"hugepages-2Mi=1Mi", "! hugepages-2Mi"},
		{"cpu=1 hugepages-2Mi=1Mi", "hugepages-2Mi"},
		{"cpu=1 hugepages-2Mi=3Mi", "hugepages-2Mi"},
		{"cpu=1 hugepages-2Mi=-2Mi", "hugepages-2Mi"},
		{"cpu=1 hugepages-=0", "hugepages-"},
		{"cpu=1 hugepages-abc=1", "hugepages-abc"},
		{"cpu=1 hugepages-0=0", "hugepages-0"},
		{"cpu=1 hugepages-1500m=3", "hugepages-1500m"},
	}
	var out []Case
	for _, t := range table {
		var faults []string
		for _, name := range strings.Fields(t.faults) {
			if name == "!" {
				faults = append(faults, "overhead")
				continue
			}
			faults = append(faults, "overhead.podFixed["+name+"]")
		}
		if strings.HasPrefix(t.overhead, "=") {
			faults = append(faults, "overhead.podFixed[]")
		}
		list := corev1.ResourceList{}
		for _, pair := range strings.Fields(t.overhead) {
			name, value, _ := strings.Cut(pair, "=")
			list[corev1.ResourceName(name)] = amount(value)
		}
		out = append(out, of("overhead "+short(t.overhead), func(c *nodev1.RuntimeClass) {
			c.Overhead = &nodev1.Overhead{PodFixed: list}
		}, faults...))
	}
	return out
}

// tolerations are written as the faults below scheduling.tolerations.
func tolerations() []Case {
	seconds := func(n int64) *int64 { return &n }
	table := []struct {
		name   string
		list   []corev1.Toleration
		faults string
	}{
		{"none", []corev1.Toleration{}, ""},
		{"of everything", []corev1.Toleration{{Operator: "Exists"}}, ""},
		{"of all that is not scheduled", []corev1.Toleration{{Operator: "Exists", Effect: "NoSchedule"}}, ""},
		{"key alone", []corev1.Toleration{{Key: "a"}}, ""},
		{"key and value", []corev1.Toleration{{Key: "a", Value: "b"}}, ""},
		{"Equal", []corev1.Toleration{{Key: "a", Operator: "Equal", Value: "b"}}, ""},
		{"Equal to nothing", []corev1.Toleration{{Key: "a", Operator: "Equal"}}, ""},
		{"Exists", []corev1.Toleration{{Key: "a", Operator: "Exists"}}, ""},
		{"NoSchedule", []corev1.Toleration{{Key: "a", Operator: "Exists", Effect: "NoSchedule"}}, ""},
		{"PreferNoSchedule", []corev1.Toleration{{Key: "a", Operator: "Exists", Effect: "PreferNoSchedule"}}, ""},
		{"NoExecute", []corev1.Toleration{{Key: "a", Operator: "Exists", Effect: "NoExecute"}}, ""},
		{"for 300 s", []corev1.Toleration{{Key: "a", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: seconds(300)}}, ""},
		{"for 0 s", []corev1.Toleration{{Key: "a", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: seconds(0)}}, ""},
		{"for -1 s", []corev1.Toleration{{Key: "a", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: seconds(-1)}}, ""},
		{"of everything for 1 s", []corev1.Toleration{{Operator: "Exists", Effect: "NoExecute", TolerationSeconds: seconds(1)}}, ""},
		{"key with a domain", []corev1.Toleration{{Key: "example.com/a", Operator: "Exists"}}, ""},
		{"longest key and value", []corev1.Toleration{{Key: x(63), Value: x(63)}}, ""},
		{"two effects", []corev1.Toleration{{Key: "a", Operator: "Exists", Effect: "NoSchedule"}, {Key: "a", Operator: "Exists", Effect: "NoExecute"}}, ""},
		{"two values", []corev1.Toleration{{Key: "a", Value: "b"}, {Key: "a", Value: "c"}}, ""},
		{"Equal, said and not said", []corev1.Toleration{{Key: "a", Value: "b"}, {Key: "a", Operator: "Equal", Value: "b"}}, ""},
		{"one within another", []corev1.Toleration{{Operator: "Exists"}, {Key: "a", Operator: "Exists"}}, ""},
		{"empty", []corev1.Toleration{{}}, "[0].operator"},
		{"value alone", []corev1.Toleration{{Value: "b"}}, "[0].operator"},
		{"effect alone", []corev1.Toleration{{Effect: "NoSchedule"}}, "[0].operator"},
		{"Equal without a key", []corev1.Toleration{{Operator: "Equal", Value: "b"}}, "[0].operator"},
		{"Exists with a value", []corev1.Toleration{{Key: "a", Operator: "Exists", Value: "b"}}, "[0].operator"},
		{"operator in small letters", []corev1.Toleration{{Key: "a", Operator: "exists"}}, "[0].operator"},
		{"operator of selectors", []corev1.Toleration{{Key: "a", Operator: "In", Value: "b"}}, "[0].operator"},
		{"Lt", []corev1.Toleration{{Key: "a", Operator: "Lt", Value: "5"}}, "[0].operator"},
		{"Gt", []corev1.Toleration{{Key: "a", Operator: "Gt", Value: "5"}}, "[0].operator"},
		{"Lt without a key", []corev1.Toleration{{Operator: "Lt", Value: "5"}}, "[0].operator"},
		{"effect in small letters", []corev1.Toleration{{Key: "a", Effect: "noschedule"}}, "[0].effect"},
		{"effect of no version", []corev1.Toleration{{Key: "a", Effect: "NoScheduleNoAdmit"}}, "[0].effect"},
		{"seconds without an effect", []corev1.Toleration{{Key: "a", Operator: "Exists", TolerationSeconds: seconds(1)}}, "[0].effect"},
		{"seconds of NoSchedule", []corev1.Toleration{{Key: "a", Operator: "Exists", Effect: "NoSchedule", TolerationSeconds: seconds(1)}}, "[0].effect"},
		{"seconds of an unknown effect", []corev1.Toleration{{Key: "a", Operator: "Exists", Effect: "Never", TolerationSeconds: seconds(1)}}, "[0].effect"},
		{"key with a space", []corev1.Toleration{{Key: "a b", Operator: "Exists"}}, "[0].key"},
		{"key that begins with a hyphen", []corev1.Toleration{{Key: "-a", Operator: "Exists"}}, "[0].key"},
		{"key of two slashes", []corev1.Toleration{{Key: "a/b/c", Operator: "Exists"}}, "[0].key"},
		{"key that is too long", []corev1.Toleration{{Key: x(64), Operator: "Exists"}}, "[0].key"},
		{"value with a space", []corev1.Toleration{{Key: "a", Value: "b c"}}, "[0].operator"},
		{"value with a slash", []corev1.Toleration{{Key: "a", Operator: "Equal", Value: "b/c"}}, "[0].operator"},
		{"value that is too long", []corev1.Toleration{{Key: "a", Operator: "Equal", Value: x(64)}}, "[0].operator"},
		{"wrong key, value and effect", []corev1.Toleration{{Key: "a b", Value: "c d", Effect: "Never"}}, "[0].effect [0].key [0].operator"},
		{"the second wrong", []corev1.Toleration{{Key: "a"}, {Key: "b", Operator: "Is"}}, "[1].operator"},
		{"twice", []corev1.Toleration{{Key: "a", Value: "b"}, {Key: "a", Value: "b"}}, "[1]"},
		{"three times", []corev1.Toleration{{Operator: "Exists"}, {Operator: "Exists"}, {Operator: "Exists"}}, "[1] [2]"},
		{"twice, for other times", []corev1.Toleration{
			{Key: "a", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: seconds(1)}, {Key: "a", Operator: "Exists", Effect: "NoExecute"},
		}, "[1]"},
		{"twice and wrong", []corev1.Toleration{{}, {}}, "[0].operator [1] [1].operator"},
	}
	var out []Case
	for _, t := range table {
		var faults []string
		for _, path := range strings.Fields(t.faults) {
			faults = append(faults, "scheduling.tolerations"+path)
		}
		out = append(out, of("toleration "+t.name, func(c *nodev1.RuntimeClass) {
			c.Scheduling = &nodev1.Scheduling{Tolerations: t.list}
		}, faults...))
	}
	return out
}
