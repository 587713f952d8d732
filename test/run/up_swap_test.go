package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/test/hostprep"
)

const (
	mi   = 1 << 20
	page = 4096
)

// containerCgroup is the folder of the cgroup of a pod's first container, on cgroup v2.
func containerCgroup(t *testing.T, p corev1.Pod) string {
	t.Helper()
	dirs := podCgroups(t, p)
	if len(dirs) != 1 {
		t.Fatalf("pod %s has the cgroups %q", p.Name, dirs)
	}
	_, id, _ := strings.Cut(container(p).ContainerID, "://")
	found, err := filepath.Glob(filepath.Join(dirs[0], "*"+id+"*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the container of pod %s has the cgroups %q, %v", p.Name, found, err)
	}
	// crun has systemd make a scope, and the container's cgroup in that.
	if inner := found[0] + "/container"; isFolder(inner) {
		return inner
	}
	return found[0]
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// swap is a pod whose container writes more than it may keep in memory.
const swap = `
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  runtimeClassName: CLASS
  terminationGracePeriodSeconds: 0
  restartPolicy: Never
  containers:
  - name: main
    image: IMAGE
    command: [sh, -c, "head -c 41943040 /dev/urandom >/dev/shm/file || exit 3; touch /ready; exec sleep 1000"]
    readinessProbe: {periodSeconds: 1, timeoutSeconds: 60, exec: {command: [test, -e, /ready]}}
    resources: {limits: {memory: 32Mi}, requests: {memory: REQUEST}}
---
`

// TestUpSwap: by LimitedSwap the container of a burstable pod has its share of the swap
// and uses it; one whose limit is its request has none, and without the flag nobody.
func TestUpSwap(t *testing.T) {
	if !hostprep.OwnMachine() {
		t.Skip("needs a machine of the tests' own, with cgroup v2, as it gives it swap: make test-guest")
	}
	total := swapOn(t)
	onBoth(t, func(t *testing.T, m *machine, class string) {
		text := ""
		for name, request := range map[string]string{"shares": "31Mi", "all": "32Mi"} {
			text += strings.NewReplacer("NAME", name, "REQUEST", request).Replace(fill(swap, class))
		}
		m.write("swap.yaml", text)
		m.write("before.yaml", strings.NewReplacer("NAME", "before", "REQUEST", "31Mi").Replace(fill(swap, class)))
		killed := func(p corev1.Pod) bool {
			s := container(p).State.Terminated
			return s != nil && s.Reason == "OOMKilled"
		}
		j := m.up()
		m.want(0, "apply", "-f", m.dir+"/classes.yaml", "-f", m.dir+"/before.yaml")
		m.await("it is killed", func(pods map[string]corev1.Pod) bool { return killed(pods["before"]) })
		m.want(0, "delete", "-f", m.dir+"/before.yaml")
		m.await("no pods", func(pods map[string]corev1.Pod) bool { return len(pods) == 0 })
		j.signal(syscall.SIGINT)
		j.ends(0)

		j = m.up("--swap-behavior", "LimitedSwap")
		m.want(0, "apply", "-f", m.dir+"/swap.yaml")
		m.await("one runs and one is killed", func(pods map[string]corev1.Pod) bool {
			if s := container(pods["shares"]).State.Terminated; s != nil {
				t.Fatalf("the pod with swap has ended: %+v", s)
			}
			return ready(pods["shares"]) && killed(pods["all"])
		})
		shares := m.pods()["shares"]
		want := int64(float64(31*mi) / float64(meminfo(t, "MemTotal:")) * float64(total))
		group := containerCgroup(t, shares)
		top := strings.TrimSpace(readFile(t, group+"/memory.swap.max"))
		if got, err := strconv.ParseInt(top, 10, 64); err != nil || got > want || got < want-page {
			t.Errorf("the container may have %s bytes of swap, want %d in whole pages", top, want)
		}
		if readFile(t, group+"/memory.swap.current") == "0\n" {
			t.Error("the container has written more than its memory and no swap is used")
		}
		m.want(0, "delete", "-f", m.dir+"/swap.yaml")
		m.await("no pods", func(pods map[string]corev1.Pod) bool { return len(pods) == 0 })
		m.want(0, "delete", "-f", m.dir+"/classes.yaml")
		j.signal(syscall.SIGINT)
		j.ends(0)
	})
}

// swapOn gives the machine swap, which is in its memory, and says how much.
func swapOn(t *testing.T) int64 {
	t.Helper()
	const device = "/dev/zram0"
	size := func(text string) error { return os.WriteFile("/sys/block/zram0/disksize", []byte(text), 0) }
	if _, err := os.Stat(device); errors.Is(err, fs.ErrNotExist) {
		if out, err := exec.Command("modprobe", "zram").CombinedOutput(); err != nil {
			t.Skipf("needs zram: %v: %s", err, out)
		}
	}
	if err := size("2G"); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{{"mkswap", device}, {"swapon", device}} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", argv, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("swapoff", device).CombinedOutput(); err != nil {
			t.Errorf("swapoff: %v: %s", err, out)
		}
		_ = os.WriteFile("/sys/block/zram0/reset", []byte("1"), 0)
	})
	return meminfo(t, "SwapTotal:")
}

// meminfo is a line of /proc/meminfo, in bytes.
func meminfo(t *testing.T, name string) int64 {
	t.Helper()
	for line := range strings.Lines(readFile(t, "/proc/meminfo")) {
		var kib int64
		if f := strings.Fields(line); len(f) > 1 && f[0] == name {
			if _, err := fmt.Sscan(f[1], &kib); err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("/proc/meminfo has no %s", name)
	return 0
}
