package eviction

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/cgroups"
)

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestObserve(t *testing.T) {
	const meminfo = "MemTotal:        1000 kB\nMemFree:          300 kB\nInactive(file):   100 kB\nHugePages_Total:       0\n"
	dir := t.TempDir()
	write(t, filepath.Join(dir, "proc/meminfo"), meminfo)
	write(t, filepath.Join(dir, "proc/loadavg"), "0.20 0.18 0.12 1/80 11206\n")
	write(t, filepath.Join(dir, "v1/memory.usage_in_bytes"), "5000\n")
	write(t, filepath.Join(dir, "v1/memory.stat"), "inactive_file 1\ntotal_inactive_file 1000\n")
	write(t, filepath.Join(dir, "v2/memory.current"), "7000\n")
	write(t, filepath.Join(dir, "v2/memory.stat"), "anon 1\ninactive_file 500\n")
	o := Observer{Proc: filepath.Join(dir, "proc"), Pods: filepath.Join(dir, "v1"), Memory: 10_000, Pids: 100, Nodefs: dir, Imagefs: dir}
	seen, err := o.Observe()
	if err != nil {
		t.Fatal(err)
	}
	for signal, want := range map[Signal]Observation{
		MemoryAvailable: {400 << 10, 1000 << 10}, AllocatableMemory: {6000, 10_000}, PIDAvailable: {20, 100},
	} {
		if seen[signal] != want {
			t.Errorf("%s: %+v, want %+v", signal, seen[signal], want)
		}
	}
	for _, signal := range []Signal{NodefsAvailable, ImagefsAvailable} {
		if seen[signal].Available <= 0 || seen[signal].Capacity < seen[signal].Available {
			t.Errorf("%s: %+v", signal, seen[signal])
		}
	}
	o.Pods = filepath.Join(dir, "v2")
	if seen, err = o.Observe(); err != nil || seen[AllocatableMemory] != (Observation{3500, 10_000}) {
		t.Errorf("v2: %+v, %v", seen[AllocatableMemory], err)
	}

	// What is broken is named, and the rest is there.
	write(t, filepath.Join(dir, "proc/meminfo"), "MemTotal: 1 kB\n")
	write(t, filepath.Join(dir, "proc/loadavg"), "x")
	o.Pods, o.Nodefs = filepath.Join(dir, "none"), filepath.Join(dir, "none")
	seen, err = o.Observe()
	for _, want := range []string{"meminfo has no MemFree", "observe the memory of all pods", "loadavg says", "observe the file system of " + o.Nodefs} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	if len(seen) < 1 || seen[ImagefsAvailable].Capacity == 0 {
		t.Errorf("the rest: %+v", seen)
	}
}

// What a real process in a real cgroup of pods has is not available to the others.
func TestObserveRealPods(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make cgroups")
	}
	const limit, used = 256 << 20, 4 << 20
	root := fmt.Sprintf("fairlead-test-eviction-%d", os.Getpid())
	m, err := cgroups.New(cgroups.Config{Driver: cgroups.Cgroupfs, Root: root, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	web := pod("web", asks("memory", "1Mi")).Pod
	t.Cleanup(func() {
		if err := errors.Join(m.Remove(context.Background(), web.UID), m.Clear(context.Background())); err != nil {
			t.Error(err)
		}
		for _, dir := range []string{"/sys/fs/cgroup/" + root, "/sys/fs/cgroup/*/" + root} {
			left, _ := filepath.Glob(dir)
			for _, l := range left {
				if err := os.Remove(l); err != nil {
					t.Error(err)
				}
			}
		}
	})
	if err := errors.Join(m.Start(t.Context(), capacity.Together{Memory: limit}), m.Ensure(t.Context(), web)); err != nil {
		t.Fatal(err)
	}
	procs := filepath.Join(filepath.Dir(m.Top()), strings.TrimPrefix(m.Parent(web), "/"+root), "cgroup.procs")
	eater := exec.CommandContext(t.Context(), "sh", "-c", `echo 0 >"$0" && x=$(head -c "$1" /dev/zero | tr "\0" x) && echo "${#x}" && read -r y`, procs, strconv.Itoa(used))
	in, err := eater.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := eater.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := eater.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || strings.TrimSpace(line) != strconv.Itoa(used) {
		t.Fatalf("%q, %v", line, err)
	}
	o := Observer{Proc: "/proc", Pods: m.Top(), Memory: limit, Pids: 1 << 20}
	seen := must(t, o)[AllocatableMemory]
	if seen.Capacity != limit || seen.Available > limit-used || seen.Available <= 0 {
		t.Errorf("observed %+v while %d of %d are in use", seen, used, limit)
	}
	_ = in.Close()
	_ = eater.Wait()
}

// disks mounts small file systems.
func disks(t *testing.T, names ...string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount file systems")
	}
	dir := t.TempDir()
	for _, n := range names {
		at := filepath.Join(dir, n)
		if err := os.Mkdir(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=1m,nr_inodes=100"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
	return dir
}

func TestLayoutOf(t *testing.T) {
	dir := disks(t, "a", "b")
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, tt := range []struct {
		node, image, container string
		want                   Layout
		err                    string
	}{
		{a, a, a, OneDisk, ""},
		{a, b, b, ImagesApart, ""},
		{a, b, a, OnlyImagesApart, ""},
		{a, a, b, OneDisk, "are on different disks"},
		{a, b, dir, OneDisk, "are on different disks"},
		{a, filepath.Join(dir, "none"), a, OneDisk, "no such file"},
	} {
		got, err := LayoutOf(tt.node, tt.image, tt.container)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s %s %s: %v, %v", tt.node, tt.image, tt.container, got, err)
		}
	}
}

// small is a node whose pods are files on a real disk.
type small struct {
	fake
	observer Observer
	done     context.CancelFunc
}

func (s *small) Observe(context.Context) (Observations, error) { return s.observer.Observe() }

func (s *small) Evict(ctx context.Context, e Eviction) error {
	defer s.done()
	return errors.Join(s.fake.Evict(ctx, e), os.Remove(filepath.Join(s.observer.Nodefs, e.Pod.Name)))
}

func TestAFullDisk(t *testing.T) {
	dir := filepath.Join(disks(t, "disk"), "disk")
	write(t, filepath.Join(dir, "large"), strings.Repeat("x", 600<<10))
	write(t, filepath.Join(dir, "small"), strings.Repeat("x", 300<<10))
	thresholds, err := Settings{Hard: map[string]string{"nodefs.available": "15%"}}.Parse()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := &small{done: cancel, observer: Observer{Proc: "/proc", Nodefs: dir, Pids: 1 << 20}, fake: fake{
		start: time.Now(), pods: []Pod{pod("small", layer(300<<10)), pod("large", layer(600<<10))},
	}}
	m := New(Config{Thresholds: thresholds, Log: slog.New(slog.DiscardHandler)}, s)
	if err := m.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "large")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the pod that fills the disk is there: %v", s.log)
	}
	if _, err := os.Stat(filepath.Join(dir, "small")); err != nil {
		t.Errorf("the other one is gone: %v", s.log)
	}
	if got := m.machine.Step(time.Now(), must(t, s.observer)); len(got.Due) > 0 || len(got.Conditions) > 0 {
		t.Errorf("still %v, %v", got.Conditions, got.Due)
	}
	if err := m.Admit(&corev1.Pod{}); err == nil {
		t.Error("a pod is admitted before anybody has looked again")
	}
}

func must(t *testing.T, o Observer) Observations {
	t.Helper()
	seen, err := o.Observe()
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

func TestPressure(t *testing.T) {
	if _, err := os.Stat("/proc/pressure/memory"); err != nil {
		t.Skip("needs a kernel that tells of pressure")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Pressure{File: "/proc/pressure/memory", Wake: make(chan struct{})}.Run(ctx) }()
	time.Sleep(50 * time.Millisecond) // most likely it waits then
	cancel()
	switch err := <-ended; {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EOPNOTSUPP):
		t.Skipf("this kernel does not tell: %v", err)
	case err != nil:
		t.Error(err)
	}
	if err := (Pressure{File: filepath.Join(t.TempDir(), "none")}).Run(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such file: %v", err)
	}
}
