package runtimeclass_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/pkg/runtimeclass"
)

func node(name string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, c := range change {
		c(n)
	}
	return n
}

func labelled(pairs ...string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		for _, p := range pairs {
			key, value, _ := strings.Cut(p, "=")
			n.Labels[key] = value
		}
	}
}

func tainted(key, value string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: effect})
	}
}

func handling(names ...string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		for _, name := range names {
			n.Status.RuntimeHandlers = append(n.Status.RuntimeHandlers, corev1.NodeRuntimeHandler{Name: name})
		}
	}
}

func allocatable(pairs ...string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Status.Allocatable = list(pairs...) }
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

func requesting(pairs ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Resources: corev1.ResourceRequirements{Requests: list(pairs...)}})
	}
}

func requiring(key string, operator corev1.NodeSelectorOperator, values ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}},
		}}}
	}
}

// sandboxed is a class that selects a label and tolerates a taint.
func sandboxed() *nodev1.RuntimeClass {
	c := plain("gvisor")
	c.Handler = "runsc"
	c.Scheduling = &nodev1.Scheduling{
		NodeSelector: map[string]string{"runtime": "gvisor"},
		Tolerations:  []corev1.Toleration{{Key: "sandbox", Operator: corev1.TolerationOpExists}},
	}
	return c
}

func TestMatchOneNode(t *testing.T) {
	const handler = runtimeclass.LabelHandlerPrefix + "runsc"
	fits := labelled("runtime=gvisor")
	for name, tt := range map[string]struct {
		class *nodev1.RuntimeClass
		pod   *corev1.Pod
		node  *corev1.Node
		want  string // causes and details
	}{
		"no class, no pod":            {nil, nil, node("a"), ""},
		"label":                       {sandboxed(), nil, node("a", fits), ""},
		"no label":                    {sandboxed(), nil, node("a"), "Class: no node label runtime=gvisor"},
		"another value":               {sandboxed(), nil, node("a", labelled("runtime=")), `Class: node label runtime is "", not gvisor`},
		"handler in status":           {sandboxed(), nil, node("a", fits, handling("", "runsc")), ""},
		"handler not in status":       {sandboxed(), nil, node("a", fits, handling("", "runc")), "Handler: no runtime handler runsc"},
		"handler verified":            {sandboxed(), nil, node("a", fits, labelled(handler+"=true")), ""},
		"handler verified and listed": {sandboxed(), nil, node("a", fits, handling("runsc"), labelled(handler+"=true")), ""},
		"verified once, not listed":   {sandboxed(), nil, node("a", fits, handling("runc"), labelled(handler+"=true")), "Handler: no runtime handler runsc"},
		"listed and failing":          {sandboxed(), nil, node("a", fits, handling("runsc"), labelled(handler+"=false")), "Handler: runtime handler runsc does not work there, says node label handler.fairlead.run/runsc=false"},
		"only others verified":        {sandboxed(), nil, node("a", fits, labelled(runtimeclass.LabelHandlerPrefix+"runc=true")), "Handler: no node label handler.fairlead.run/runsc"},
		"others verified, listed":     {sandboxed(), nil, node("a", fits, handling("runsc"), labelled(runtimeclass.LabelHandlerPrefix+"runc=true")), ""},
		"taint tolerated by class":    {sandboxed(), nil, node("a", fits, tainted("sandbox", "gvisor", "NoSchedule")), ""},
		"taint":                       {sandboxed(), nil, node("a", fits, tainted("gpu", "a100", "NoSchedule")), "Taint: taint gpu=a100:NoSchedule"},
		"two taints":                  {sandboxed(), nil, node("a", fits, tainted("z", "", "NoExecute"), tainted("gpu", "", "NoSchedule"), tainted("z", "", "PreferNoSchedule")), "Taint: taint gpu:NoSchedule | Taint: taint z:NoExecute"},
		"taint tolerated by pod":      {sandboxed(), pod(withTolerations(corev1.Toleration{Key: "gpu", Operator: "Exists"})), node("a", fits, tainted("gpu", "", "NoSchedule"), tainted("sandbox", "", "NoExecute")), ""},
		"cordoned":                    {sandboxed(), nil, node("a", fits, cordoned, tainted(corev1.TaintNodeUnschedulable, "", "NoSchedule")), "Cordon: it is cordoned"},
		"cordoned, tolerated":         {nil, pod(withTolerations(corev1.Toleration{Operator: "Exists"})), node("a", cordoned), ""},
		"pod's selector":              {sandboxed(), pod(withSelector("gpu=a100")), node("a", fits), "Selector: no node label gpu=a100"},
		"both selectors":              {sandboxed(), pod(withSelector("gpu=a100")), node("a", fits, labelled("gpu=a100")), ""},
		"pod's selector is class's":   {sandboxed(), pod(withSelector("runtime=gvisor")), node("a"), "Class: no node label runtime=gvisor"},
		"pod's affinity":              {sandboxed(), pod(requiring("zone", "In", "x", "y")), node("a", fits, labelled("zone=z")), "Affinity: required node affinity"},
		"pod's affinity, met":         {sandboxed(), pod(requiring("zone", "In", "x", "y")), node("a", fits, labelled("zone=y")), ""},
		"affinity of no sense":        {nil, pod(requiring("zone", "Near")), node("a"), "Affinity: required node affinity that cannot be read: "},
		"another node":                {nil, pod(func(p *corev1.Pod) { p.Spec.NodeName = "b" }), node("a"), "Name: the pod names node b"},
		"room":                        {full(), pod(requesting("memory=1Gi")), node("a", fits, allocatable("memory=1088Mi", "cpu=1", "pods=1")), ""},
		"no room for overhead":        {full(), pod(requesting("memory=1Gi")), node("a", fits, allocatable("memory=1Gi", "cpu=1", "pods=1")), "Resources: memory: 1088Mi needed, 64Mi of it overhead, and 1Gi free"},
		"no room, twice":              {full(), pod(requesting("memory=1Gi", "cpu=1")), node("a", fits, allocatable("memory=1Mi", "cpu=100m")), "Resources: cpu: 1250m needed, 250m of it overhead, and 100m free | Resources: memory: 1088Mi needed, 64Mi of it overhead, and 1Mi free"},
		"a device that is not there":  {nil, pod(requesting("nvidia.com/gpu=1")), node("a", allocatable("memory=1Gi")), "Resources: nvidia.com/gpu: 1 needed and 0 free"},
		"zero of a device":            {nil, pod(requesting("nvidia.com/gpu=0")), node("a", allocatable("memory=1Gi")), ""},
		"a node that tells nothing":   {nil, pod(requesting("memory=1Gi")), node("a"), ""},
		"no pods":                     {nil, pod(), node("a", allocatable("pods=0")), "Resources: pods: 1 needed and 0 free"},
		"everything": {
			sandboxed(), pod(withSelector("gpu=a100"), requiring("zone", "Exists"), requesting("memory=2Gi")),
			node("a", handling("runc"), tainted("x", "", "NoExecute"), allocatable("memory=1Gi")),
			"Handler: no runtime handler runsc | Class: no node label runtime=gvisor | Selector: no node label gpu=a100 | Affinity: required node affinity | Taint: taint x:NoExecute | Resources: memory: 2Gi needed and 1Gi free",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := runtimeclass.Match(runtimeclass.Query{Class: tt.class, Pod: tt.pod, Nodes: []*corev1.Node{tt.node}})
			if err != nil {
				t.Fatal(err)
			}
			var parts []string
			for _, w := range got[0].Why {
				parts = append(parts, string(w.Cause)+": "+w.Detail)
			}
			text := strings.Join(parts, " | ")
			if text != tt.want && (!strings.HasSuffix(tt.want, ": ") || !strings.HasPrefix(text, tt.want)) {
				t.Errorf("got  %s\nwant %s", text, tt.want)
			}
			if got[0].OK() != (tt.want == "") {
				t.Errorf("OK is %t", got[0].OK())
			}
		})
	}
}

func TestMatchWithWhatIsUsed(t *testing.T) {
	q := runtimeclass.Query{
		Pod:   pod(requesting("memory=1Gi")),
		Nodes: []*corev1.Node{node("b", allocatable("memory=2Gi", "pods=2")), node("a", allocatable("memory=2Gi", "pods=2")), node("c", allocatable("memory=2Gi", "pods=2"))},
		Used:  map[string]corev1.ResourceList{"a": list("memory=1.5Gi", "pods=1"), "b": list("memory=3Gi", "pods=2"), "c": list("memory=1Gi", "pods=1")},
	}
	got, err := runtimeclass.Match(q)
	if err != nil {
		t.Fatal(err)
	}
	want := "[{a [{Resources memory: 1Gi needed and 512Mi free memory}]} {b [{Resources memory: 1Gi needed and 0 free memory} {Resources pods: 1 needed and 0 free pods}]} {c []}]"
	if text := fmt.Sprint(got); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

func TestMatchRefuses(t *testing.T) {
	var r *runtimeclass.Rejection
	_, err := runtimeclass.Explain(runtimeclass.Query{Class: sandboxed(), Pod: pod(withSelector("runtime=runc"))})
	if !errors.As(err, &r) || r.Reason != runtimeclass.ReasonSelector {
		t.Errorf("a pod that its class does not admit: %v", err)
	}
	for name, q := range map[string]runtimeclass.Query{
		"another class": {Class: sandboxed(), Pod: pod(onClass("kata"))},
		"no class":      {Pod: pod(onClass("kata"))},
	} {
		if _, err := runtimeclass.Match(q); err == nil || !strings.Contains(err.Error(), "the pod names RuntimeClass kata, and the query has ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func several(n int, name string, change ...func(*corev1.Node)) []*corev1.Node {
	var out []*corev1.Node
	for i := range n {
		out = append(out, node(fmt.Sprintf("%s-%d", name, i), change...))
	}
	return out
}

func TestExplain(t *testing.T) {
	fits := labelled("runtime=gvisor")
	room, full := allocatable("memory=8Gi", "cpu=4", "pods=9"), allocatable("memory=1Gi", "cpu=4", "pods=9")
	p := pod(requesting("memory=2Gi", "cpu=2"))
	for name, tt := range map[string]struct {
		pod   *corev1.Pod
		nodes []*corev1.Node
		want  string
	}{
		"the wish":   {p, slices.Concat(several(5, "other", room), several(5, "small", fits, full)), "0/10 nodes: 5 lack memory, 5 do not match RuntimeClass gvisor (no node label runtime=gvisor)"},
		"all":        {p, several(3, "a", fits, room), "3/3 nodes"},
		"none":       {p, nil, "0/0 nodes: there are none"},
		"class":      {nil, slices.Concat(several(1, "a"), several(2, "b", fits)), "2/3 nodes: 1 does not match RuntimeClass gvisor (no node label runtime=gvisor)"},
		"most first": {p, slices.Concat(several(1, "small", fits, full), several(2, "other", room)), "0/3 nodes: 2 do not match RuntimeClass gvisor (no node label runtime=gvisor), 1 lacks memory"},
		"two ways":   {p, slices.Concat(several(2, "a", labelled("runtime=runc")), several(3, "b", handling("runc"))), "0/5 nodes: 5 do not match RuntimeClass gvisor (3: no runtime handler runsc and no node label runtime=gvisor; 2: node label runtime is runc, not gvisor)"},
		"ways":       {nil, []*corev1.Node{node("a", labelled("runtime=1")), node("b", labelled("runtime=2")), node("c", labelled("runtime=3")), node("d", labelled("runtime=4")), node("e", labelled("runtime=5"))}, "0/5 nodes: 5 do not match RuntimeClass gvisor (1: node label runtime is 1, not gvisor; 1: node label runtime is 2, not gvisor; 1: node label runtime is 3, not gvisor; and 2 more reasons)"},
		"shortages":  {p, slices.Concat(several(1, "a", fits, full), several(2, "b", fits, allocatable("memory=1Gi", "cpu=1")), several(1, "c", fits, allocatable("memory=8Gi", "cpu=8", "pods=0"))), "0/4 nodes: 2 lack cpu and memory, 1 lacks memory, 1 lacks room for another pod"},
		"the pod's": {
			pod(withSelector("gpu=a100"), requiring("zone", "Exists"), func(p *corev1.Pod) { p.Spec.NodeName = "z-0" }),
			slices.Concat(several(1, "a", fits), several(1, "z", fits)),
			"0/2 nodes: 1 does not match the pod's nodeSelector (no node label gpu=a100), 1 is not the one that the pod names",
		},
		"taints and cordons": {
			pod(requiring("zone", "Exists")),
			slices.Concat(several(2, "a", fits, labelled("zone=x"), tainted("gpu", "", "NoSchedule")), several(1, "b", fits, labelled("zone=x"), cordoned), several(2, "c", fits)),
			"0/5 nodes: 2 do not match the pod's node affinity, 2 have taints that are not tolerated (taint gpu:NoSchedule), 1 is cordoned",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 5 { // whatever order they come in
				rand.Shuffle(len(tt.nodes), func(i, j int) { tt.nodes[i], tt.nodes[j] = tt.nodes[j], tt.nodes[i] })
				e, err := runtimeclass.Explain(runtimeclass.Query{Class: sandboxed(), Pod: tt.pod, Nodes: tt.nodes})
				if err != nil {
					t.Fatal(err)
				}
				if e.Sentence != tt.want {
					t.Fatalf("got  %s\nwant %s", e.Sentence, tt.want)
				}
				byName := func(a, b runtimeclass.NodeMatch) int { return strings.Compare(a.Node, b.Node) }
				if !slices.IsSortedFunc(e.Nodes, byName) || len(e.Nodes) != len(tt.nodes) {
					t.Fatalf("the nodes are not by their names: %v", e.Nodes)
				}
			}
		})
	}
}
