package e2e_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"fairlead.run/test/e2e/cluster"
)

// TestNoRoom: what nobody has scheduled and does not fit is refused by the node, with the
// kubelet's reasons.
func TestNoRoom(t *testing.T) {
	apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: large}
spec:
  nodeName: %s
  containers:
  - {name: main, image: %s, args: [pause], resources: {requests: {cpu: "1000"}}}
`, cluster.NodeName, imageOf(t, "agnhost")))
	kubectl(t, "wait", "--for=jsonpath={.status.phase}=Failed", "pod/large", "--timeout", patience.String())
	out := kubectl(t, "get", "pod", "large", "-o", "jsonpath={.status.reason}: {.status.message}")
	if want := "OutOfcpu: Pod was rejected: Node didn't have enough resource: cpu, requested: 1000000, used: "; !strings.HasPrefix(out, want) {
		t.Errorf("%s, want %s...", out, want)
	}
	kubectl(t, "delete", "pod", "large", "--timeout", patience.String())
}

// TestResizeWithoutRoom: a resize that does not fit beside another pod is deferred, and
// done when that has gone.
func TestResizeWithoutRoom(t *testing.T) {
	cpus, err := strconv.Atoi(kubectl(t, "get", "node", cluster.NodeName, "-o", "jsonpath={.status.allocatable.cpu}"))
	if err != nil {
		t.Skipf("needs a node with whole processors: %v", err)
	}
	image := imageOf(t, "agnhost")
	apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: sits}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: %s, args: [pause], resources: {requests: {cpu: %dm}}}
---
apiVersion: v1
kind: Pod
metadata: {name: grows}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: %s, args: [pause], resources: {requests: {cpu: 50m, memory: 32Mi}, limits: {cpu: 200m, memory: 64Mi}}}
`, image, cpus*1000-800, image))
	kubectl(t, "wait", "--for=condition=Ready", "pod/grows", "pod/sits", "--timeout", patience.String())
	kubectl(t, "patch", "pod", "grows", "--subresource=resize", "--patch",
		`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"900m","memory":"32Mi"},"limits":{"cpu":"900m","memory":"64Mi"}}}]}}`)
	kubectl(t, "wait", `--for=jsonpath={.status.conditions[?(@.type=="PodResizePending")].reason}=Deferred`, "pod/grows", "--timeout", patience.String())
	wantLimits(t, "grows", "20", "67108864")
	want(t, kubectl(t, "get", "pod", "grows", "-o", "jsonpath={.status.containerStatuses[0].allocatedResources.cpu}"), "50m")
	kubectl(t, "delete", "pod", "sits", "--timeout", patience.String())
	eventually(t, func() error { return limitsAre(t, "grows", "90", "67108864") })
	eventually(t, func() error {
		if out := kubectl(t, "get", "pod", "grows", "-o", "jsonpath={.status.conditions[*].type}"); strings.Contains(out, "Resize") {
			return fmt.Errorf("the pod has the conditions %s", out)
		}
		return nil
	})
	kubectl(t, "delete", "pod", "grows", "--timeout", patience.String())
}

// TestEvicted has a node short of memory, by a threshold that it is always past: its pod
// is evicted, the cluster is told of the pressure, and that it has gone.
func TestEvicted(t *testing.T) {
	if cluster.Agent(*agent) != cluster.FairleadNode {
		t.Skip("a kubelet has its thresholds in a file")
	}
	apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: victim}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: %s, args: [pause]}
`, imageOf(t, "agnhost")))
	kubectl(t, "wait", "--for=condition=Ready", "pod/victim", "--timeout", patience.String())
	restartNode(t, "--eviction-hard", "memory.available<99%")
	kubectl(t, "wait", "--for=condition=MemoryPressure", "node/"+cluster.NodeName, "--timeout", patience.String())
	kubectl(t, "wait", "--for=jsonpath={.status.phase}=Failed", "pod/victim", "--timeout", patience.String())
	want(t, kubectl(t, "get", "pod", "victim", "-o", `jsonpath={.status.reason} {.status.conditions[?(@.type=="DisruptionTarget")].reason}`), "Evicted TerminationByKubelet")
	restartNode(t)
	kubectl(t, "wait", "--for=condition=MemoryPressure=false", "node/"+cluster.NodeName, "--timeout", patience.String())
	eventually(t, untainted(t))
	want(t, kubectl(t, "get", "pod", "victim", "-o", "jsonpath={.status.reason}"), "Evicted")
	kubectl(t, "delete", "pod", "victim", "--timeout", patience.String())
}

// restartNode restarts the agent, with further flags until the next time.
func restartNode(t *testing.T, flags ...string) {
	t.Helper()
	usual := node.Kubelet.Argv
	node.Kubelet.Argv = append(usual[:len(usual):len(usual)], flags...)
	err := again(node.Kubelet.Kill, node.Kubelet.Start)
	node.Kubelet.Argv = usual
	if err != nil {
		t.Fatal(err)
	}
}

// untainted says that no pod is kept away for want of memory.
func untainted(t *testing.T) func() error {
	return func() error {
		if out := kubectl(t, "get", "node", cluster.NodeName, "-o", "jsonpath={.spec.taints}"); strings.Contains(out, "memory-pressure") {
			return fmt.Errorf("the node has the taints %s", out)
		}
		return nil
	}
}
