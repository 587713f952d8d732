package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/systemd"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/node/capacity"
)

// tree is one of the test's own, of which nothing may be left at its end.
func tree(t *testing.T, d Driver, cfg Config) *Manager {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make cgroups")
	}
	if d == Systemd && !systemd.IsRunningSystemd() {
		t.Skip("needs systemd, to make slices")
	}
	cfg.Driver, cfg.Root, cfg.Log = d, fmt.Sprintf("fairlead-test-%d", os.Getpid()), slog.New(slog.DiscardHandler)
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for n := len(m.top); n > 0; n-- {
			if err := m.remove(context.Background(), m.top[:n]); err != nil {
				t.Errorf("left at the end: %v", err)
			}
		}
	})
	return m
}

// both runs a test with each driver that the host has.
func both(t *testing.T, cfg Config, test func(t *testing.T, m *Manager)) {
	for _, d := range []Driver{Cgroupfs, Systemd} {
		t.Run(string(d), func(t *testing.T) { test(t, tree(t, d, cfg)) })
	}
}

// files are those that show limits, on cgroup v1 and v2.
var files = map[string][2]string{
	"cpu":    {"cpu.shares", "cpu.weight"},
	"quota":  {"cpu.cfs_quota_us", "cpu.max"},
	"memory": {"memory.limit_in_bytes", "memory.max"},
	"pids":   {"pids.max", "pids.max"},
}

// shows is what the kernel has: the number, or "none".
func shows(t *testing.T, m *Manager, n name, what string) string {
	t.Helper()
	controller, v := what, 0
	if what == "quota" {
		controller = "cpu"
	}
	if cgroups.IsCgroup2UnifiedMode() {
		controller, v = "", 1
	}
	b, err := os.ReadFile(filepath.Join(m.paths(n)[controller], files[what][v]))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Fields(string(b))[0]
	if k, err := strconv.ParseInt(text, 10, 64); text == "max" || err == nil && (k < 0 || k > 1<<60) {
		return "none"
	}
	return text
}

// weight is what a cgroup with these shares shows.
func weight(shares uint64) string {
	if cgroups.IsCgroup2UnifiedMode() {
		shares = cgroups.ConvertCPUSharesToCgroupV2Value(shares)
	}
	return strconv.FormatUint(shares, 10)
}

func expect(t *testing.T, m *Manager, n name, want map[string]string) {
	t.Helper()
	for what, text := range want {
		if got := shows(t, m, n, what); got != text {
			t.Errorf("%s of %s is %s, want %s", what, n.path(), got, text)
		}
	}
}

func burstable(uid, request, memory string) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name, p.Namespace, p.UID = "web", "default", types.UID(uid)
	p.Spec.Containers = []corev1.Container{container(amounts("cpu", request), amounts("cpu", "2", "memory", memory))}
	return p
}

// memoryOf is the folder that shows a pod's memory.
func (m *Manager) memoryOf(pod *corev1.Pod) string {
	dir, _ := m.there(m.podName(pod))
	return dir
}

func ensure(t *testing.T, m *Manager, pod *corev1.Pod) {
	t.Helper()
	if err := m.Ensure(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

func TestTree(t *testing.T) {
	both(t, Config{PodPids: 100}, func(t *testing.T, m *Manager) {
		if err := m.Start(t.Context(), capacity.Together{MilliCPU: 1500, Memory: 8 << 30, Pids: 5000}); err != nil {
			t.Fatal(err)
		}
		expect(t, m, m.top, map[string]string{"cpu": weight(1536), "memory": strconv.Itoa(8 << 30), "pids": "5000", "quota": "none"})
		expect(t, m, m.tier(corev1.PodQOSBestEffort), map[string]string{"cpu": weight(2), "memory": "none"})

		pod := burstable("a-b", "500m", "128Mi")
		ensure(t, m, pod)
		n := m.podName(pod)
		expect(t, m, n, map[string]string{"cpu": weight(512), "quota": "200000", "memory": strconv.Itoa(128 << 20), "pids": "100"})

		if err := m.Share(t.Context(), []*corev1.Pod{pod, burstable("c", "1", "1Gi")}); err != nil {
			t.Fatal(err)
		}
		expect(t, m, m.tier(corev1.PodQOSBurstable), map[string]string{"cpu": weight(1536)})

		// A restart takes nothing from pods that run.
		later, err := New(m.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := later.Start(t.Context(), capacity.Together{MilliCPU: 1500, Memory: 4 << 30}); err != nil {
			t.Fatal(err)
		}
		expect(t, m, m.tier(corev1.PodQOSBurstable), map[string]string{"cpu": weight(1536)})
		expect(t, m, m.top, map[string]string{"memory": strconv.Itoa(4 << 30), "pids": "none"})

		// In place: other values, then none.
		pod.Spec.Containers[0] = container(amounts("cpu", "1"), amounts("cpu", "1500m", "memory", "256Mi"))
		ensure(t, m, pod)
		expect(t, m, n, map[string]string{"cpu": weight(1024), "quota": "150000", "memory": strconv.Itoa(256 << 20)})
		pod.Spec.Containers[0] = container(amounts("cpu", "250m"), nil)
		ensure(t, m, pod)
		expect(t, m, n, map[string]string{"cpu": weight(256), "quota": "none", "memory": "none"})

		if err := m.Clear(t.Context()); err == nil {
			t.Error("cleared with a pod in it")
		}
		if err := m.Remove(t.Context(), pod.UID); err != nil {
			t.Fatal(err)
		}
		if err := m.Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		if m.anywhere(m.top) {
			t.Error("the tree is still there")
		}
	})
}

// What was removed by somebody else is made again, though nothing has changed.
func TestMadeAgain(t *testing.T) {
	m := tree(t, Cgroupfs, Config{})
	pod := burstable("again", "500m", "128Mi")
	ensure(t, m, pod)
	for _, dir := range m.paths(m.podName(pod)) {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // in some hierarchies there is none
			t.Fatal(err)
		}
	}
	ensure(t, m, pod)
	expect(t, m, m.podName(pod), map[string]string{"memory": strconv.Itoa(128 << 20)})
}

// An unchanged pod writes nothing.
func TestUnchanged(t *testing.T) {
	m := tree(t, Cgroupfs, Config{})
	pod := burstable("same", "500m", "128Mi")
	ensure(t, m, pod)
	file := "memory.limit_in_bytes"
	if cgroups.IsCgroup2UnifiedMode() {
		file = "memory.max"
	}
	other := filepath.Join(m.memoryOf(pod), file)
	if err := os.WriteFile(other, []byte(strconv.Itoa(64<<20)), 0); err != nil {
		t.Fatal(err)
	}
	ensure(t, m, pod)
	expect(t, m, m.podName(pod), map[string]string{"memory": strconv.Itoa(64 << 20)})
}

// TestTimed counts what was done, and how it is called.
func TestTimed(t *testing.T) {
	m := tree(t, Cgroupfs, Config{})
	if err := m.Start(t.Context(), capacity.Together{}); err != nil {
		t.Fatal(err)
	}
	m.stats = newMetrics()
	check := func(creates, updates, destroys string) {
		t.Helper()
		var out strings.Builder
		if err := m.Metrics(&out); err != nil {
			t.Fatal(err)
		}
		for operation, count := range map[string]string{create: creates, update: updates, destroy: destroys} {
			line := fmt.Sprintf("kubelet_cgroup_manager_duration_seconds_count{operation_type=%q} ", operation)
			if _, got, _ := strings.Cut(out.String(), line); count != "" && !strings.HasPrefix(got, count+"\n") || count == "" && got != "" {
				t.Errorf("no %s%s in\n%s", line, count, &out)
			}
		}
	}
	ensure(t, m, burstable("timed", "500m", "128Mi"))
	ensure(t, m, burstable("timed", "500m", "128Mi"))
	check("1", "", "")
	ensure(t, m, burstable("timed", "500m", "256Mi"))
	check("1", "1", "")
	if err := m.Remove(t.Context(), "timed"); err != nil {
		t.Fatal(err)
	}
	if err := m.Remove(t.Context(), "timed"); err != nil {
		t.Fatal(err)
	}
	check("1", "1", "1")
}

// A new Manager finds what an earlier one has made, and removes it with what runs
// in it and below.
func TestOrphans(t *testing.T) {
	both(t, Config{}, func(t *testing.T, m *Manager) {
		effort := &corev1.Pod{}
		effort.UID, effort.Spec.Containers = "0e0b3d9f-0001", []corev1.Container{{}}
		sure := &corev1.Pod{}
		sure.UID, sure.Spec.Containers = "sure", []corev1.Container{container(nil, amounts("cpu", "1", "memory", "1Gi"))}
		some := burstable("some", "1", "1Gi")
		for _, pod := range []*corev1.Pod{effort, sure, some} {
			ensure(t, m, pod)
		}
		sleeper := exec.CommandContext(t.Context(), "sleep", "1000")
		if err := sleeper.Start(); err != nil {
			t.Fatal(err)
		}
		below := filepath.Join(m.memoryOf(some), "container")
		if err := os.Mkdir(below, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(below, "cgroup.procs"), []byte(strconv.Itoa(sleeper.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
		later, err := New(m.cfg)
		if err != nil {
			t.Fatal(err)
		}
		got, err := later.Pods()
		if want := []types.UID{"0e0b3d9f-0001", "some", "sure"}; err != nil || !slices.Equal(got, want) {
			t.Fatalf("found %v, %v, want %v", got, err, want)
		}
		ended := make(chan error, 1)
		go func() { ended <- sleeper.Wait() }()
		for _, uid := range append(got, "unknown") {
			if err := later.Remove(t.Context(), uid); err != nil {
				t.Fatal(err)
			}
		}
		<-ended
		if ws, ok := sleeper.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
			t.Errorf("the process below ended by %v", sleeper.ProcessState)
		}
		if left, err := later.Pods(); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}

func TestRefused(t *testing.T) {
	if _, err := New(Config{Driver: "x"}); err == nil {
		t.Error("a driver that is none is taken")
	}
	if _, err := New(Config{Driver: Cgroupfs, Root: "/a/../b"}); err == nil {
		t.Error("a root that leads elsewhere is taken")
	}
	m := tree(t, Cgroupfs, Config{})
	for _, uid := range []types.UID{"", "../x", "a/b"} {
		if err := m.Remove(t.Context(), uid); err == nil {
			t.Errorf("pod %q is removed", uid)
		}
	}
}
