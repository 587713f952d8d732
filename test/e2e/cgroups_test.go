package e2e_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// Pods of each class of quality are in the cgroups where the kubelet expects them,
// with its limits on the pod and Fairlead's on the container; and a resize in place
// changes both.
func TestCgroups(t *testing.T) {
	image := imageOf(t, "agnhost")
	for _, c := range []struct {
		class, resources string
		cpu, memory      string // of the pod and of the container: milliseconds in each 100, and bytes
	}{
		{"Guaranteed", "{requests: {cpu: 200m, memory: 64Mi}, limits: {cpu: 200m, memory: 64Mi}}", "20", "67108864"},
		{"Burstable", "{requests: {cpu: 50m, memory: 32Mi}, limits: {cpu: 300m, memory: 96Mi}}", "30", "100663296"},
		{"BestEffort", "{}", "max", "max"},
	} {
		t.Run(c.class, func(t *testing.T) {
			name := "class-" + strings.ToLower(c.class)
			apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: %s, args: [pause], resources: %s}
`, name, image, c.resources))
			kubectl(t, "wait", "--for=condition=Ready", "pod/"+name, "--timeout", patience.String())
			want(t, kubectl(t, "get", "pod", name, "-o", "jsonpath={.status.qosClass}"), c.class)
			wantLimits(t, name, c.cpu, c.memory)
			if c.class == "Guaranteed" {
				resize(t, name)
			}
			kubectl(t, "delete", "pod", name, "--timeout", patience.String())
		})
	}
}

// resize gives a pod's container other limits, and wants the same process to
// have them.
func resize(t *testing.T, name string) {
	t.Helper()
	const pid = `jsonpath={.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}`
	before := kubectl(t, "get", "pod", name, "-o", pid)
	kubectl(t, "patch", "pod", name, "--subresource=resize", "--patch",
		`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"300m","memory":"80Mi"},"limits":{"cpu":"300m","memory":"80Mi"}}}]}}`)
	eventually(t, func() error { return limitsAre(t, name, "30", "83886080") })
	eventually(t, func() error {
		out := kubectl(t, "get", "pod", name, "-o", "jsonpath={.status.containerStatuses[0].resources.limits}")
		if !strings.Contains(out, "300m") || !strings.Contains(out, "80Mi") {
			return fmt.Errorf("the container's status has the limits %s", out)
		}
		return nil
	})
	want(t, kubectl(t, "get", "pod", name, "-o", pid), before)
}

// TestOutOfMemory: the kubelet asks for a container on cgroup v2 to end as a whole
// for want of memory, and is told why it has ended.
func TestOutOfMemory(t *testing.T) {
	// On cgroup v1 the shell would outlive its child.
	eats := "x=a; while :; do x=$x$x; done"
	if node.Unified() {
		eats = "(" + eats + "); exit 0"
	}
	apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: eats}
spec:
  terminationGracePeriodSeconds: 0
  restartPolicy: Never
  containers:
  - name: main
    image: %s
    command: [sh, -c, %q]
    resources: {limits: {memory: 32Mi}}
`, imageOf(t, "agnhost"), eats))
	kubectl(t, "wait", "--for=jsonpath={.status.phase}=Failed", "pod/eats", "--timeout", patience.String())
	want(t, kubectl(t, "get", "pod", "eats", "-o",
		"jsonpath={range .status.containerStatuses[0].state.terminated}{.reason} {.exitCode}{end}"), "OOMKilled 137")
	kubectl(t, "delete", "pod", "eats", "--timeout", patience.String())
}

func wantLimits(t *testing.T, name, cpu, memory string) {
	t.Helper()
	if err := limitsAre(t, name, cpu, memory); err != nil {
		t.Error(err)
	}
}

// limitsAre compares the cgroups of a pod and of its container with limits.
func limitsAre(t *testing.T, name, cpu, memory string) error {
	t.Helper()
	for _, dir := range cgroupsOf(t, name) {
		gotCPU, gotMemory, err := limitsOf(dir)
		if err != nil {
			return err
		}
		if gotCPU != cpu || gotMemory != memory {
			return fmt.Errorf("the cgroup %s has %s ms and %s bytes, want %s and %s", dir, gotCPU, gotMemory, cpu, memory)
		}
	}
	return nil
}

// cgroupsOf are the cgroups of a pod and of its first container, that one as a pattern.
func cgroupsOf(t *testing.T, name string) []string {
	t.Helper()
	out := kubectl(t, "get", "pod", name, "-o", "jsonpath={.metadata.uid} {.status.qosClass} {.status.containerStatuses[0].containerID}")
	f := strings.Fields(out)
	if len(f) != 3 {
		t.Fatalf("pod %s has uid, class and container %q", name, out)
	}
	pod := node.PodCgroup(f[0], f[1])
	_, id, _ := strings.Cut(f[2], "://")
	return []string{pod, pod + "/*" + id + "*"}
}

// limitsOf reads the limits of a cgroup, of either version: milliseconds of a
// processor in each 100, and bytes, or "max".
func limitsOf(cgroup string) (cpu, memory string, err error) {
	const top = "/sys/fs/cgroup"
	if !node.Unified() {
		quota, err := value(filepath.Join(top, "cpu", cgroup, "cpu.cfs_quota_us"))
		if err != nil {
			return "", "", err
		}
		memory, err = value(filepath.Join(top, "memory", cgroup, "memory.limit_in_bytes"))
		return milliseconds(quota), unlimited(memory), err
	}
	quota, err := value(filepath.Join(top, cgroup, "cpu.max"))
	if err != nil {
		return "", "", err
	}
	quota, _, _ = strings.Cut(quota, " ")
	memory, err = value(filepath.Join(top, cgroup, "memory.max"))
	return milliseconds(quota), memory, err
}

// value is what is in the only file of the node that a pattern fits.
func value(pattern string) (string, error) {
	data, err := node.Machine().Read(pattern)
	return strings.TrimSpace(data), err
}

// milliseconds of a quota in microseconds, which is -1 or max where there is none.
func milliseconds(quota string) string {
	if quota == "-1" || quota == "max" {
		return "max"
	}
	return strings.TrimSuffix(quota, "000")
}

// unlimited is how cgroup v1 says max: whole pages up to the largest number.
func unlimited(memory string) string {
	if memory == "9223372036854771712" {
		return "max"
	}
	return memory
}
