package run

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// podCgroups are the folders of a pod's cgroup in all hierarchies.
func podCgroups(t *testing.T, p corev1.Pod) []string {
	t.Helper()
	uid := string(p.UID)
	var out []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // it has just gone
		}
		name := strings.TrimSuffix(d.Name(), ".slice")
		if strings.HasSuffix(name, "pod"+uid) || strings.HasSuffix(name, "pod"+strings.ReplaceAll(uid, "-", "_")) {
			out = append(out, path)
			return filepath.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// value is what a file of a pod's cgroup says that only one hierarchy has: by its name on
// cgroup v1 and on v2.
func value(t *testing.T, p corev1.Pod, v1, v2 string) string {
	t.Helper()
	for _, dir := range podCgroups(t, p) {
		for _, name := range []string{v1, v2} {
			if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				return strings.TrimSpace(string(text))
			}
		}
	}
	return ""
}

const limited = `
apiVersion: v1
kind: Pod
metadata: {name: limited}
spec:
  runtimeClassName: CLASS
  terminationGracePeriodSeconds: 1
  containers:
  - {name: a, image: IMAGE, command: [sleep, '1000'], resources: {limits: {cpu: 200m, memory: 64Mi}}}
  - {name: b, image: IMAGE, command: [sleep, '1000'], resources: {limits: {cpu: 100m, memory: 32Mi}, requests: {cpu: 50m, memory: 16Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: best}
spec:
  runtimeClassName: CLASS
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: IMAGE, command: [sleep, '1000']}]
---
apiVersion: v1
kind: Pod
metadata: {name: short}
spec:
  runtimeClassName: CLASS
  restartPolicy: Never
  containers: [{name: main, image: IMAGE, command: [sh, -c, "exit 3"]}]
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: CLASS}
handler: HANDLER
overhead: {podFixed: {memory: 4Mi}}
`

// TestUpCgroups has each pod in a cgroup with the limits of its containers and the
// overhead of its class, once, through kills of fairlead up, and none when it is gone.
func TestUpCgroups(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine, class string) {
		handler := strings.TrimPrefix(class, "on-")
		j := m.up()
		m.want(0, "apply", "-f", m.write("limited.yaml", strings.ReplaceAll(fill(limited, class), "HANDLER", handler)))
		there := func(pods map[string]corev1.Pod) bool {
			return ready(pods["limited"]) && ready(pods["best"]) && pods["short"].Status.Phase == corev1.PodFailed
		}
		m.await("the pods", there)
		check := func() {
			t.Helper()
			pods := m.pods()
			if got := value(t, pods["limited"], "memory.limit_in_bytes", "memory.max"); got != "104857600" {
				t.Errorf("the pod may use %s bytes, want 64, 32 and 4 MiB", got)
			}
			if got := value(t, pods["limited"], "cpu.cfs_quota_us", "cpu.max"); got != "30000" && got != "30000 100000" {
				t.Errorf("the pod has a quota of %q, want 200m and 100m", got)
			}
			for name, tier := range map[string]string{"limited": "burstable", "best": "besteffort"} {
				dirs := podCgroups(t, pods[name])
				seen := map[string]bool{}
				for _, dir := range dirs {
					if seen[dir] || !strings.Contains(dir, "kubepods") || !strings.Contains(dir, tier) {
						t.Errorf("pod %s is in %q", name, dirs)
					}
					seen[dir] = true
				}
				if len(dirs) == 0 {
					t.Errorf("pod %s has no cgroup", name)
				}
			}
			if dirs := podCgroups(t, pods["short"]); len(dirs) > 0 {
				t.Errorf("a pod that has ended has %q", dirs)
			}
		}
		check()
		before := m.pods()
		var tops []string
		for _, dir := range podCgroups(t, before["best"]) {
			tops = append(tops, filepath.Dir(filepath.Dir(dir)))
		}
		j.signal(syscall.SIGKILL)
		j.ends(-1)
		j = m.up()
		m.await("the same pods", there)
		check()
		for name, p := range m.pods() {
			if container(p).ContainerID != container(before[name]).ContainerID {
				t.Errorf("pod %s was started again", name)
			}
		}
		m.want(0, "delete", "-f", m.dir+"/limited.yaml")
		j.signal(syscall.SIGKILL) // wherever it is in taking them away
		j.ends(-1)
		j = m.up()
		for name, p := range before {
			for end := time.Now().Add(patience); len(podCgroups(t, p)) > 0; time.Sleep(50 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("pod %s is gone and has %q", name, podCgroups(t, p))
				}
			}
		}
		m.await("no pods", func(pods map[string]corev1.Pod) bool { return len(pods) == 0 })
		j.signal(syscall.SIGINT)
		j.ends(0)
		for _, dir := range tops {
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("left without a pod: %s", dir)
			}
		}
	})
}

const waiting = `
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: IMAGE, command: [sleep, '1000'], resources: {requests: {cpu: CPU}}}]
`

// TestUpRoom has a pod wait that does not fit beside another, until that one has gone.
func TestUpRoom(t *testing.T) {
	m := newMachine(t)
	write := func(name, cpu string) string {
		return m.write(name+".yaml", strings.NewReplacer("NAME", name, "IMAGE", image, "CPU", cpu).Replace(waiting))
	}
	j := m.up()
	m.want(0, "apply", "-f", write("first", "10m"))
	m.await("the first", func(pods map[string]corev1.Pod) bool { return ready(pods["first"]) })
	all := fmt.Sprintf("%dm", runtime.NumCPU()*1000)
	m.want(0, "apply", "-f", write("second", all))
	m.await("the second is refused", func(pods map[string]corev1.Pod) bool { return pods["second"].Status.Phase == corev1.PodFailed })
	if s := m.pods()["second"].Status; s.Reason != "OutOfcpu" || !strings.HasPrefix(s.Message, "Pod was rejected: Node didn't have enough resource: cpu") {
		t.Errorf("%s: %s", s.Reason, s.Message)
	}
	m.want(0, "delete", "pod", "first")
	m.await("the second", func(pods map[string]corev1.Pod) bool { return ready(pods["second"]) })
	m.want(0, "delete", "pod", "second")
	m.await("no pods", func(pods map[string]corev1.Pod) bool { return len(pods) == 0 })
	j.signal(syscall.SIGINT)
	j.ends(0)
}

// TestUpEvicts has the machine short of memory, by a threshold that it is always past: a
// pod is evicted, for good, and others are not let in.
func TestUpEvicts(t *testing.T) {
	m := newMachine(t)
	pod := func(name string) string {
		return m.write(name+".yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: "+name+"}\nspec: {terminationGracePeriodSeconds: 1, containers: [{name: main, image: "+image+", command: [sleep, '1000']}]}\n")
	}
	j := m.up()
	m.want(0, "apply", "-f", pod("victim"))
	m.await("the pod", func(pods map[string]corev1.Pod) bool { return ready(pods["victim"]) })
	j.signal(syscall.SIGKILL)
	j.ends(-1)
	j = m.up("--eviction-hard", "memory.available<99%")
	m.await("it is evicted", func(pods map[string]corev1.Pod) bool { return pods["victim"].Status.Phase == corev1.PodFailed })
	s := m.pods()["victim"].Status
	if s.Reason != "Evicted" || !strings.HasPrefix(s.Message, "The node was low on resource: memory. Threshold quantity: ") {
		t.Errorf("%s: %s", s.Reason, s.Message)
	}
	m.want(0, "apply", "-f", pod("late"))
	m.await("another one is refused", func(pods map[string]corev1.Pod) bool { return pods["late"].Status.Phase == corev1.PodFailed })
	if s := m.pods()["late"].Status; s.Reason != "Evicted" || s.Message != "Pod was rejected: The node had condition: [MemoryPressure]. " {
		t.Errorf("%s: %q", s.Reason, s.Message)
	}
	if out := m.want(0, "events").out; !strings.Contains(out, "EvictionThresholdMet") {
		t.Errorf("events %s", out)
	}
	j.signal(syscall.SIGKILL)
	j.ends(-1)
	j = m.up()
	m.await("that one runs, and the other has ended", func(pods map[string]corev1.Pod) bool {
		return ready(pods["late"]) && pods["victim"].Status.Phase == corev1.PodFailed
	})
	m.want(0, "delete", "pod", "victim")
	m.want(0, "delete", "pod", "late")
	m.await("no pods", func(pods map[string]corev1.Pod) bool { return len(pods) == 0 })
	j.signal(syscall.SIGINT)
	j.ends(0)
}
