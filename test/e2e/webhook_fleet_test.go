package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/test/e2e/cluster"
)

// kindOf are nodes of one kind. They have no kubelet: the API is told that they are
// ready, and pods that are given to one stay as they are.
type kindOf struct {
	names    []string
	labels   map[string]string
	handlers []string
	taints   []corev1.Taint
}

var (
	reserved = corev1.Taint{Key: "e2e.fairlead.run/sandboxes", Value: "only", Effect: corev1.TaintEffectNoSchedule}
	kept     = corev1.Taint{Key: "e2e.fairlead.run/kept", Effect: corev1.TaintEffectNoSchedule}
)

// theFleet is ten nodes of three kinds. One of the last kind is kept for somebody.
func theFleet() []kindOf {
	sandbox := map[string]string{"sandbox": "gvisor"}
	gpu := map[string]string{"sandbox": "gvisor", "accelerator": "gpu"}
	return []kindOf{
		{names: []string{"plain-0", "plain-1", "plain-2", "plain-3"}, labels: map[string]string{"pool": "plain"}, handlers: []string{"", "runc"}},
		{names: []string{"sandbox-0", "sandbox-1", "sandbox-2"}, labels: sandbox, handlers: []string{"", "runc", "gvisor"}, taints: []corev1.Taint{reserved}},
		{names: []string{"gpu-0", "gpu-1"}, labels: gpu, handlers: []string{"", "runc", "gvisor"}, taints: []corev1.Taint{reserved}},
		{names: []string{"gpu-2"}, labels: gpu, handlers: []string{"", "runc", "gvisor"}, taints: []corev1.Taint{reserved, kept}},
	}
}

// register tells the API of the nodes, and goes on telling that they live.
func (h *hook) register(t *testing.T, fleet []kindOf) {
	t.Helper()
	var names []string
	for _, kind := range fleet {
		for _, name := range kind.names {
			names = append(names, name)
			h.registerNode(t, name, kind)
		}
	}
	const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	now := func() string { return time.Now().UTC().Format(metav1.RFC3339Micro) }
	for _, name := range names {
		h.must(t, http.MethodPost, leases, object{"metadata": object{"name": name}, "spec": object{"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now()}}, nil)
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(5 * time.Second):
			}
			for _, name := range names {
				// One that fails is made up for by the next.
				_, _ = h.do(ctx, http.MethodPatch, leases+"/"+name, object{"spec": object{"renewTime": now()}})
			}
		}
	}()
	t.Cleanup(func() {
		end()
		<-ended
		if _, err := node.Kubectl(context.Background(), append([]string{"delete", "node"}, names...)...); err != nil {
			t.Error(err)
		}
	})
	eventually(t, func() error {
		got := kubectl(t, "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name} {.spec.taints[*].key}{"\n"}{end}`)
		if strings.Contains(got, "not-ready") || strings.Contains(got, "unreachable") {
			return fmt.Errorf("not all nodes are ready:\n%s", got)
		}
		return nil
	})
}

func (h *hook) registerNode(t *testing.T, name string, kind kindOf) {
	t.Helper()
	labels := map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"}
	for k, v := range kind.labels {
		labels[k] = v
	}
	h.must(t, http.MethodPost, "/api/v1/nodes", object{"metadata": object{"name": name, "labels": labels}, "spec": object{"taints": kind.taints}}, nil)
	room := object{"cpu": "8", "memory": "16Gi", "pods": "110"}
	var handlers []object
	for _, handler := range kind.handlers {
		handlers = append(handlers, object{"name": handler, "features": object{"userNamespaces": false}})
	}
	h.must(t, http.MethodPatch, "/api/v1/nodes/"+name+"/status", object{"status": object{
		"capacity": room, "allocatable": room, "runtimeHandlers": handlers,
		"conditions": []object{{"type": "Ready", "status": "True", "reason": "Registered", "message": "a test says so", "lastHeartbeatTime": time.Now().UTC().Format(time.RFC3339)}},
	}}, nil)
}

// landing is a pod of which there may be one on each node.
type landing struct {
	name  string
	spec  object
	on    []string // the nodes that it fits; the scheduler has to use each
	where string   // the sentence about all nodes
}

func landings() []landing {
	gvisor := func(more object) object {
		out := object{"runtimeClassName": "gvisor"}
		for k, v := range more {
			out[k] = v
		}
		return out
	}
	affinity := object{"nodeAffinity": object{"requiredDuringSchedulingIgnoredDuringExecution": object{"nodeSelectorTerms": []object{
		{"matchExpressions": []object{{"key": "accelerator", "operator": "In", "values": []string{"gpu"}}}},
	}}}}
	return []landing{
		{
			"no class", nil,
			[]string{"plain-0", "plain-1", "plain-2", "plain-3"},
			"4/11 nodes: 6 have taints that are not tolerated (5: taint e2e.fairlead.run/sandboxes=only:NoSchedule; 1: taint e2e.fairlead.run/kept:NoSchedule and taint e2e.fairlead.run/sandboxes=only:NoSchedule), 1 is cordoned",
		},
		{
			"class", gvisor(nil),
			[]string{"sandbox-0", "sandbox-1", "sandbox-2", "gpu-0", "gpu-1"},
			"5/11 nodes: 5 do not match RuntimeClass gvisor (no runtime handler gvisor and no node label sandbox=gvisor), 1 has taints that are not tolerated (taint e2e.fairlead.run/kept:NoSchedule)",
		},
		{
			"class and GPU", gvisor(object{"nodeSelector": object{"accelerator": "gpu"}}),
			[]string{"gpu-0", "gpu-1"},
			"2/11 nodes: 5 do not match RuntimeClass gvisor (no runtime handler gvisor and no node label sandbox=gvisor), 3 do not match the pod's nodeSelector (no node label accelerator=gpu), 1 has taints that are not tolerated (taint e2e.fairlead.run/kept:NoSchedule)",
		},
		{
			"class, affinity and toleration", gvisor(object{"affinity": affinity, "tolerations": []object{{"key": kept.Key, "operator": "Exists"}}}),
			[]string{"gpu-0", "gpu-1", "gpu-2"},
			"3/11 nodes: 5 do not match RuntimeClass gvisor (no runtime handler gvisor and no node label sandbox=gvisor), 3 do not match the pod's node affinity",
		},
		{
			"class and the selector of others", gvisor(object{"nodeSelector": object{"pool": "plain"}}), nil,
			"0/11 nodes: 6 do not match the pod's nodeSelector (no node label pool=plain), 5 do not match RuntimeClass gvisor (no runtime handler gvisor and no node label sandbox=gvisor)",
		},
		{
			"class of no node",
			object{"runtimeClassName": "kata"},
			nil,
			"0/11 nodes: 11 do not match RuntimeClass kata (6: no runtime handler kata and node label sandbox is gvisor, not kata; 5: no runtime handler kata and no node label sandbox=kata)",
		},
		{
			"class that weighs too much",
			object{"runtimeClassName": "heavy"},
			nil,
			"0/11 nodes: 6 have taints that are not tolerated (5: taint e2e.fairlead.run/sandboxes=only:NoSchedule; 1: taint e2e.fairlead.run/kept:NoSchedule and taint e2e.fairlead.run/sandboxes=only:NoSchedule), 4 lack memory, 1 is cordoned",
		},
	}
}

// Ten nodes without a kubelet: pods land where their class and they themselves can
// be, and nowhere else; and fairlead classes explain says of a pod that waits what the
// scheduler did with those before it.
func (h *hook) fleet(t *testing.T) {
	kubectl(t, "cordon", cluster.NodeName)
	t.Cleanup(func() {
		if _, err := node.Kubectl(context.Background(), "uncordon", cluster.NodeName); err != nil {
			t.Error(err)
		}
	})
	h.register(t, theFleet())
	tolerates := []object{{"key": reserved.Key, "operator": "Equal", "value": reserved.Value, "effect": reserved.Effect}}
	h.classFor(t, object{"metadata": object{"name": "gvisor"}, "handler": "gvisor", "scheduling": object{"nodeSelector": object{"sandbox": "gvisor"}, "tolerations": tolerates}})
	h.classFor(t, object{"metadata": object{"name": "kata"}, "handler": "kata", "scheduling": object{"nodeSelector": object{"sandbox": "kata"}}})
	h.classFor(t, object{"metadata": object{"name": "heavy"}, "handler": "runc", "overhead": object{"podFixed": object{"memory": "64Gi"}}})
	h.namespaceFor(t, "fleet", nil)
	for i, l := range landings() {
		t.Run(l.name, func(t *testing.T) { h.land(t, fmt.Sprintf("pod-%d", i), l) })
	}
	t.Run("conflict", func(t *testing.T) {
		pod := h.apart("conflict", object{"runtimeClassName": "gvisor", "nodeSelector": object{"sandbox": "kata"}})
		got := h.ask(t, http.MethodPost, podsOf("fleet"), pod)
		for _, text := range []string{"sandbox", "gvisor", "kata"} {
			if got.code != http.StatusForbidden || !strings.Contains(got.message(), text) {
				t.Errorf("not a refusal that says %q: %s", text, got)
			}
		}
	})
	t.Run("handler of no node", func(t *testing.T) {
		made := h.classFor(t, object{"metadata": object{"name": "nowhere"}, "handler": "nowhere"})
		if text := strings.Join(made.warnings, "\n"); !strings.Contains(text, "no node") || !strings.Contains(text, "nowhere") {
			t.Errorf("warnings %q", made.warnings)
		}
		out, err := h.explain(t, "class/nowhere")
		if err == nil || !strings.Contains(out, "0/11 nodes") || !strings.Contains(out, "no runtime handler nowhere") {
			t.Errorf("%v: %s", err, out)
		}
	})
	h.noPanics(t)
}

// apart is a pod of a group that keeps its members apart.
func (h *hook) apart(group string, spec object) object {
	affinity := object{}
	if given, ok := spec["affinity"].(object); ok {
		for k, v := range given {
			affinity[k] = v
		}
	}
	affinity["podAntiAffinity"] = object{"requiredDuringSchedulingIgnoredDuringExecution": []object{
		{"topologyKey": corev1.LabelHostname, "labelSelector": object{"matchLabels": object{"group": group}}},
	}}
	all := object{"automountServiceAccountToken": false, "containers": []object{{"name": "c", "image": "registry.invalid/e2e/none:1", "resources": object{"requests": object{"cpu": "10m"}}}}}
	for k, v := range spec {
		all[k] = v
	}
	all["affinity"] = affinity
	return object{"metadata": object{"generateName": group + "-", "labels": object{"group": group}}, "spec": all}
}

var keptApart = regexp.MustCompile(`(\d+) node\(s\) didn't match pod anti-affinity rules`)

// land makes one pod more than there are nodes for, and holds where they land against
// what should be, and against what explain says of the one that waits.
func (h *hook) land(t *testing.T, group string, l landing) {
	for range len(l.on) + 1 {
		h.must(t, http.MethodPost, podsOf("fleet"), h.apart(group, l.spec), nil)
	}
	var landed []string
	var waits corev1.Pod
	eventually(t, func() error {
		var pods corev1.PodList
		h.must(t, http.MethodGet, podsOf("fleet")+"?labelSelector=group%3D"+group, nil, &pods)
		landed, waits = nil, corev1.Pod{}
		for _, p := range pods.Items {
			switch {
			case p.Spec.NodeName != "":
				landed = append(landed, p.Spec.NodeName)
			case unschedulable(&p) == "":
				return fmt.Errorf("the scheduler has not looked at pod %s", p.Name)
			default:
				waits = p
			}
		}
		if waits.Name == "" || len(landed) < len(l.on) {
			return fmt.Errorf("pods are on %q, want them on %q, and one to wait", landed, l.on)
		}
		return nil
	})
	if !same(landed, l.on) {
		t.Errorf("pods are on %q, want %q", landed, l.on)
	}
	why := unschedulable(&waits)
	apart := "0"
	if m := keptApart.FindStringSubmatch(why); m != nil {
		apart = m[1]
	}
	if !strings.HasPrefix(why, "0/11 nodes are available: ") || apart != fmt.Sprint(len(l.on)) {
		t.Errorf("the scheduler says %q, and %d nodes should fit but for another pod there", why, len(l.on))
	}
	h.agree(t, waits.Name, l)
}

// agree holds explain against the scheduler.
func (h *hook) agree(t *testing.T, pod string, l landing) {
	t.Helper()
	out, err := h.explain(t, "pod/"+pod, "-n", "fleet", "-o", "json")
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatalf("%v: %s", err, out)
	}
	var got struct {
		Schedulable bool
		Sentence    string
		Nodes       []struct{ Names, Why []string }
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var fits []string
	for _, group := range got.Nodes {
		if len(group.Why) == 0 {
			fits = append(fits, group.Names...)
		}
	}
	if !same(fits, l.on) || got.Schedulable != (len(l.on) > 0) || (err == nil) != got.Schedulable {
		t.Errorf("explain has nodes %q (schedulable: %t, %v), and the scheduler used %q", fits, got.Schedulable, err, l.on)
	}
	want(t, got.Sentence, l.where)
}

// explain is fairlead classes explain. Of JSON, nothing else may be in the output.
func (h *hook) explain(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(*fairlead, "fairlead"), append([]string{"classes", "explain", "--kubeconfig", node.Kubeconfig}, args...)...)
	out, err := cmd.Output()
	return string(out), err
}

// unschedulable is why the scheduler has found no node.
func unschedulable(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

func same(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}
