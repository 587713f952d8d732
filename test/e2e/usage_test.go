package e2e_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	statsv1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"fairlead.run/test/e2e/cluster"
)

const mi = 1 << 20

// TestUsage compares what the node says that a pod uses with what the pod is known to
// use, by each of the ways to ask.
func TestUsage(t *testing.T) {
	if cluster.Agent(*agent) != cluster.FairleadNode {
		t.Skip("what a kubelet says is not of our making")
	}
	const least, limit = 40 * mi, 128 * mi
	apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: uses}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{name: memory, emptyDir: {medium: Memory}}]
  containers:
  - name: main
    image: %s
    command: [sh, -c, "head -c %d /dev/zero >/memory/file; touch /memory/done; exec sleep 10000"]
    readinessProbe: {exec: {command: [test, -e, /memory/done]}, periodSeconds: 1, timeoutSeconds: 60}
    volumeMounts: [{name: memory, mountPath: /memory}]
    resources: {limits: {memory: %d, cpu: "1"}, requests: {memory: 64Mi, cpu: 100m}}
`, imageOf(t, "agnhost"), least, limit))
	kubectl(t, "wait", "--for=condition=Ready", "pod/uses", "--timeout", patience.String())
	eventually(t, func() error { return summaryOf(t, "uses", least, limit) })
	for _, path := range []string{"/metrics/cadvisor", "/metrics/resource"} {
		eventually(t, func() error {
			got, err := metricOf(t, path, "container_memory_working_set_bytes", "uses")
			if err == nil && (got < least || got > limit) {
				err = fmt.Errorf("%s: the container uses %.0f bytes, want some more than %d", path, got, least)
			}
			return err
		})
	}
	kubectl(t, "delete", "pod", "uses", "--timeout", patience.String())
}

// summaryOf looks at /stats/summary.
func summaryOf(t *testing.T, name string, least, limit uint64) error {
	t.Helper()
	s := summary(t)
	memory := s.Node.Memory
	if memory == nil || memory.WorkingSetBytes == nil || memory.AvailableBytes == nil || s.Node.CPU == nil || *s.Node.CPU.UsageCoreNanoSeconds == 0 {
		return fmt.Errorf("the node has %+v", s.Node)
	}
	capacity := resource.MustParse(kubectl(t, "get", "node", cluster.NodeName, "-o", "jsonpath={.status.capacity.memory}"))
	if all := *memory.WorkingSetBytes + *memory.AvailableBytes; all != uint64(capacity.Value()) {
		return fmt.Errorf("the node uses %d bytes and has %d, of %d", *memory.WorkingSetBytes, *memory.AvailableBytes, capacity.Value())
	}
	for _, p := range s.Pods {
		if p.PodRef.Name != name {
			continue
		}
		if len(p.Containers) != 1 || p.Memory == nil || p.CPU == nil || *p.CPU.UsageCoreNanoSeconds == 0 {
			return fmt.Errorf("the pod has %+v", p)
		}
		inner := p.Containers[0].Memory
		if used := *inner.WorkingSetBytes; used < least || used+*inner.AvailableBytes != limit {
			return fmt.Errorf("the container uses %d bytes and has %d", used, *inner.AvailableBytes)
		}
		if used := *p.Memory.WorkingSetBytes; used < least || used > *memory.WorkingSetBytes {
			return fmt.Errorf("the pod uses %d bytes, and the node %d", used, *memory.WorkingSetBytes)
		}
		return nil
	}
	return fmt.Errorf("there is no pod %s", name)
}

func summary(t *testing.T) (out statsv1.Summary) {
	t.Helper()
	text := kubectl(t, "get", "--raw", "/api/v1/nodes/"+cluster.NodeName+"/proxy/stats/summary")
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// metricOf is the value of a metric of the pod's container.
func metricOf(t *testing.T, path, metric, pod string) (float64, error) {
	t.Helper()
	text := kubectl(t, "get", "--raw", "/api/v1/nodes/"+cluster.NodeName+"/proxy"+path)
	line := regexp.MustCompile(`(?m)^` + metric + `\{[^}]*\} (\S+)`)
	for _, found := range line.FindAllStringSubmatch(text, -1) {
		if strings.Contains(found[0], `pod="`+pod+`"`) && strings.Contains(found[0], `container="main"`) {
			return strconv.ParseFloat(found[1], 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s of pod %s", path, metric, pod)
}

// TestHugePages has a pod use the huge pages that it asks for and no more of them, and
// one that asks for none is limited to that. The guest is booted with some.
func TestHugePages(t *testing.T) {
	if *guest == "" {
		t.Skip("needs a machine with huge pages: make e2e-guest")
	}
	image := imageOf(t, "agnhost")
	apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: pages}
spec:
  terminationGracePeriodSeconds: 0
  restartPolicy: Never
  volumes: [{name: pages, emptyDir: {medium: HugePages}}]
  containers:
  - name: main
    image: %s
    command: [sh, -c, "busybox fallocate -l 4194304 /pages/own || exit 3; busybox fallocate -l 2097152 /pages/more && exit 4; touch /done; exec sleep 10000"]
    readinessProbe: {exec: {command: [test, -e, /done]}, periodSeconds: 1, timeoutSeconds: 60}
    volumeMounts: [{name: pages, mountPath: /pages}]
    resources: {limits: {memory: 32Mi, cpu: 200m, hugepages-2Mi: 4Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: pageless}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: %s, args: [pause]}]
`, image, image))
	eventually(t, func() error {
		out := kubectl(t, "get", "pod", "pages", "-o", "jsonpath={.status.phase} {.status.reason} {.status.containerStatuses[0].state}")
		if strings.HasPrefix(out, "Failed") {
			t.Fatalf("%s: the container ends with 3 if it does not get what it asks for, and with 4 if it gets more", out)
		}
		if ready := kubectl(t, "get", "pod", "pages", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`); ready != "True" {
			return fmt.Errorf("the pod is not ready: %s", out)
		}
		return nil
	})
	kubectl(t, "wait", "--for=condition=Ready", "pod/pageless", "--timeout", patience.String())
	for _, tt := range []struct{ pod, file, want string }{
		{"pages", "hugetlb.2MB.max", "4194304"},
		{"pages", "hugetlb.2MB.current", "4194304"},
		{"pages", "hugetlb.1GB.max", "0"},
		{"pageless", "hugetlb.2MB.max", "0"},
		{"pageless", "hugetlb.1GB.max", "0"},
	} {
		for _, dir := range cgroupsOf(t, tt.pod) {
			if got, err := value("/sys/fs/cgroup" + dir + "/" + tt.file); err != nil || got != tt.want {
				t.Errorf("%s of %s is %q, %v, want %s", tt.file, dir, got, err, tt.want)
			}
		}
	}
	kubectl(t, "delete", "pod", "pages", "pageless", "--timeout", patience.String())
}

// TestEvictedForMemory has a pod use up the memory of the node: it is evicted, and one
// beside it that uses less than it asks for stays.
func TestEvictedForMemory(t *testing.T) {
	if *guest == "" || cluster.Agent(*agent) != cluster.FairleadNode {
		t.Skip("needs fairlead node on a machine of its own: make e2e-guest AGENT=fairlead")
	}
	image := imageOf(t, "agnhost")
	pod := func(name, command, resources string) {
		apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{name: memory, emptyDir: {medium: Memory}}]
  containers:
  - {name: main, image: %s, command: [sh, -c, %q], resources: %s, volumeMounts: [{name: memory, mountPath: /memory}]}
`, name, image, command, resources))
	}
	pod("sits", "exec sleep 10000", "{requests: {memory: 64Mi}}")
	kubectl(t, "wait", "--for=condition=Ready", "pod/sits", "--timeout", patience.String())
	left := *summary(t).Node.Memory.AvailableBytes
	const eats = 768 * mi
	restartNode(t, "--eviction-hard", fmt.Sprintf("memory.available<%d", left-eats/2))
	pod("eats", fmt.Sprintf("head -c %d /dev/zero >/memory/file; exec sleep 10000", eats), "{}")
	kubectl(t, "wait", "--for=jsonpath={.status.phase}=Failed", "pod/eats", "--timeout", patience.String())
	want(t, kubectl(t, "get", "pod", "eats", "-o", "jsonpath={.status.reason}"), "Evicted")
	want(t, kubectl(t, "get", "pod", "sits", "-o", "jsonpath={.status.phase}"), "Running")
	restartNode(t)
	kubectl(t, "wait", "--for=condition=MemoryPressure=false", "node/"+cluster.NodeName, "--timeout", patience.String())
	eventually(t, untainted(t))
	kubectl(t, "delete", "pod", "eats", "sits", "--timeout", patience.String())
}
