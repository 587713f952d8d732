package capacity

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/priority"
)

// Reasons that a kubelet gives for pods that it does not take.
const (
	ReasonNodeInfo   = "InvalidNodeInfo"
	ReasonOSLabel    = "PodOSSelectorNodeLabelDoesNotMatch"
	ReasonOS         = "PodOSNotSupported"
	ReasonNodeName   = "NodeName"
	ReasonPorts      = "NodePorts"
	ReasonAffinity   = "NodeAffinity"
	ReasonTaint      = "TaintToleration"
	ReasonUnexpected = "UnexpectedAdmissionError"
	ReasonOutOf      = "OutOf" // and the resource
)

// Refusal says why a node does not take a pod.
type Refusal struct {
	Reason, Message string
	// Short are the resources that are missing. It is empty if something else is in
	// the way, so that no other pod's end would help.
	Short []Shortage
}

// Error has reason and message.
func (r *Refusal) Error() string { return r.Reason + ": " + r.Message }

// Shortage is a resource of which a pod asks for more than is left: thousandths of
// a CPU, bytes, or pieces.
type Shortage struct {
	Resource                  corev1.ResourceName
	Requested, Used, Capacity int64
}

// Missing is how much more would be needed.
func (s Shortage) Missing() int64 { return s.Requested + s.Used - s.Capacity }

func (s Shortage) refusal() *Refusal {
	return &Refusal{Reason: ReasonOutOf + string(s.Resource), Message: fmt.Sprintf(
		"Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", s.Resource, s.Requested, s.Used, s.Capacity)}
}

// Unexpected is the refusal for what failed where nothing should fail, as giving
// devices to a pod.
func Unexpected(err error) *Refusal {
	return &Refusal{Reason: ReasonUnexpected, Message: fmt.Sprintf("Allocate failed due to %v, which is unexpected", err)}
}

// Admit says whether the node takes the pod beside those that run. An error is a
// *Refusal. Running are all whose containers have not ended for good, without the
// pod itself. The node has what is allocatable in its status.
func Admit(pod *corev1.Pod, node *corev1.Node, running []*corev1.Pod) error {
	if node == nil {
		return &Refusal{Reason: ReasonNodeInfo, Message: "Kubelet cannot get node info."}
	}
	if r := system(pod, node); r != nil {
		return r
	}
	short := fits(pod, node, running)
	for _, check := range []func(*corev1.Pod, *corev1.Node, []*corev1.Pod) *Refusal{affinity, named, ports, taints} {
		if r := check(pod, node, running); r != nil {
			if len(short) > 0 { // the first is told, but no pod makes room for the second
				return short[0].refusal()
			}
			return r
		}
	}
	if len(short) == 0 {
		return nil
	}
	out := short[0].refusal()
	out.Short = short
	return out
}

// system refuses pods for another operating system.
func system(pod *corev1.Pod, node *corev1.Node) *Refusal {
	has := node.Labels[corev1.LabelOSStable]
	if has == "" {
		has = runtime.GOOS
	}
	if want, ok := pod.Spec.NodeSelector[corev1.LabelOSStable]; ok && want != has {
		return &Refusal{Reason: ReasonOSLabel, Message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"}
	}
	if os := pod.Spec.OS; os != nil && string(os.Name) != runtime.GOOS {
		return &Refusal{Reason: ReasonOS, Message: "Failed to admit pod as the OS field doesn't match node OS"}
	}
	return nil
}

func predicate(reason, why string) *Refusal {
	return &Refusal{Reason: reason, Message: fmt.Sprintf("Predicate %s failed: %s", reason, why)}
}

func affinity(pod *corev1.Pod, node *corev1.Node, _ []*corev1.Pod) *Refusal {
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !ok {
		return predicate(ReasonAffinity, "node(s) didn't match Pod's node affinity/selector")
	}
	return nil
}

func named(pod *corev1.Pod, node *corev1.Node, _ []*corev1.Pod) *Refusal {
	if pod.Spec.NodeName != "" && pod.Spec.NodeName != node.Name {
		return predicate(ReasonNodeName, "node(s) didn't match the requested node name")
	}
	return nil
}

// taints is for those that end pods. Static pods have been put here by the node's
// own administrator.
func taints(pod *corev1.Pod, node *corev1.Node, _ []*corev1.Pod) *Refusal {
	if priority.Static(pod) {
		return nil
	}
	ends := func(t *corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }
	// The zero logger drops what it is told, which is about numbers that are none.
	if _, found := scheduling.FindMatchingUntoleratedTaint(klog.Logger{}, node.Spec.Taints, pod.Spec.Tolerations, ends, true); found {
		return predicate(ReasonTaint, "node(s) had taints that the pod didn't tolerate")
	}
	return nil
}

// port is one of the host. An empty address is all.
type port struct {
	protocol corev1.Protocol
	address  string
	number   int32
}

func (p port) clashes(q port) bool {
	return p.number == q.number && p.protocol == q.protocol && (p.address == "" || q.address == "" || p.address == q.address)
}

func hostPorts(pod *corev1.Pod) []port {
	var out []port
	sidecars := slices.DeleteFunc(slices.Clone(pod.Spec.InitContainers), func(ct corev1.Container) bool { return !plan.Sidecar(&ct) })
	for _, ct := range slices.Concat(pod.Spec.Containers, sidecars) {
		for _, p := range ct.Ports {
			if p.HostPort <= 0 {
				continue
			}
			q := port{p.Protocol, p.HostIP, p.HostPort}
			if q.protocol == "" {
				q.protocol = corev1.ProtocolTCP
			}
			if q.address == "0.0.0.0" || q.address == "::" {
				q.address = ""
			}
			out = append(out, q)
		}
	}
	return out
}

func ports(pod *corev1.Pod, _ *corev1.Node, running []*corev1.Pod) *Refusal {
	wanted := hostPorts(pod)
	if len(wanted) == 0 {
		return nil
	}
	for _, other := range running {
		for _, taken := range hostPorts(other) {
			if slices.ContainsFunc(wanted, taken.clashes) {
				return predicate(ReasonPorts, "node(s) didn't have free ports for the requested pod ports")
			}
		}
	}
	return nil
}

// fits lists what is missing, in the order in which a kubelet names it. What the
// node does not have at all somebody else accounts for.
func fits(pod *corev1.Pod, node *corev1.Node, running []*corev1.Pod) []Shortage {
	requests := Requests(pod)
	used := corev1.ResourceList{}
	for _, other := range running {
		for what, q := range Requests(other) {
			sum := used[what]
			sum.Add(q)
			used[what] = sum
		}
	}
	var out []Shortage
	if most, ok := node.Status.Allocatable[corev1.ResourcePods]; ok && int64(len(running))+1 > most.Value() {
		out = append(out, Shortage{corev1.ResourcePods, 1, int64(len(running)), most.Value()})
	}
	for _, what := range inOrder(requests) {
		has, ok := node.Status.Allocatable[what]
		if !ok && !strings.HasPrefix(string(what), corev1.ResourceHugePagesPrefix) { // of sizes that the kernel does not have there are none
			continue
		}
		s := Shortage{what, amount(requests, what), amount(used, what), value(what, has.MilliValue, has.Value)}
		if s.Requested > 0 && s.Missing() > 0 {
			out = append(out, s)
		}
	}
	return out
}

// inOrder has the resources that everybody knows first.
func inOrder(l corev1.ResourceList) []corev1.ResourceName {
	first := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
	var rest []corev1.ResourceName
	for what := range l {
		if !slices.Contains(first, what) && what != corev1.ResourcePods {
			rest = append(rest, what)
		}
	}
	slices.SortFunc(rest, func(a, b corev1.ResourceName) int { return strings.Compare(string(a), string(b)) })
	return append(first, rest...)
}

func amount(l corev1.ResourceList, what corev1.ResourceName) int64 {
	q := l[what]
	return value(what, q.MilliValue, q.Value)
}

func value(what corev1.ResourceName, milli, whole func() int64) int64 {
	if what == corev1.ResourceCPU {
		return milli()
	}
	return whole()
}
