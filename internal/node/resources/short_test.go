package resources

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/agent"
	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/eviction"
	"fairlead.run/internal/node/fakeruntime"
	"fairlead.run/internal/node/images"
	"fairlead.run/internal/node/podspec"
)

// here has all images.
type here struct{}

func (here) Ensure(_ context.Context, r images.Request) (images.Image, error) {
	return images.Image{Ref: r.Image}, nil
}

// empty has no objects.
type empty struct{}

func (empty) ConfigMap(context.Context, string, string) (*corev1.ConfigMap, error) { return nil, nil }

func (empty) Secret(context.Context, string, string) (*corev1.Secret, error) { return nil, nil }

// small is a node with an agent and a keeper, whose disk is a small one of its own.
type small struct {
	*agent.Agent
	t    *testing.T
	k    *Keeper
	disk string

	mu    sync.Mutex
	heard []string
}

func (*small) Changed(*corev1.Pod, corev1.PodStatus) {}
func (*small) Gone(*corev1.Pod)                      {}

func (s *small) Event(p *corev1.Pod, kind, reason, message string) {
	s.hear(p.Name, kind, reason, message)
}

func (s *small) hear(about, kind, reason, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = append(s.heard, about+" "+kind+" "+reason+": "+message)
}

func (s *small) told(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.heard, func(line string) bool { return strings.Contains(line, text) })
}

// newSmall starts it, with a threshold.
func newSmall(t *testing.T, hard map[string]string) *small {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a file system")
	}
	s := &small{t: t, disk: t.TempDir()}
	if err := unix.Mount("tmpfs", s.disk, "tmpfs", 0, "size=4m,nr_inodes=400"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(s.disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	fake, log := fakeruntime.New(), slog.New(slog.DiscardHandler)
	var err error
	s.k, err = New(t.Context(), Config{
		Settings: Settings{
			Cgroups: Cgroups{Off: true}, Capacity: capacity.Settings{MaxPods: 9}, Eviction: Eviction{Settings: eviction.Settings{Hard: hard}},
		},
		Runtime: fake, Images: fake.Images, Name: "n", Folder: s.disk, Logs: func(p *corev1.Pod) string { return filepath.Join(s.disk, "logs", p.Name) }, Log: log,
		Tell: Tell{
			Evicted: func(p *corev1.Pod, message string, _ map[string]string) {
				s.hear(p.Name, corev1.EventTypeWarning, eviction.Reason, message)
			},
			Node: func(kind, reason, message string) { s.hear("node", kind, reason, message) }, Changed: func() {},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Agent = agent.New(agent.Config{
		Name: "test", Runtime: fake, Scheme: "fake", Images: here{}, Objects: empty{}, Node: podspec.Node{Name: "n", IPs: podspec.Fixed([]string(nil)), DNS: podspec.Fixed(podspec.DNS{})}, Reporter: s,
		Place: func(context.Context, *corev1.Pod) (agent.Placement, error) { return agent.Placement{}, nil },
		Root:  s.disk, State: t.TempDir(), Log: log,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, run := range []func(context.Context) error{s.Run, func(ctx context.Context) error { return s.k.Run(ctx, s.Agent, nil) }} {
		all.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { // before the disk goes
		cancel()
		all.Wait()
	})
	return s
}

// await has the node looked at until something is so.
func (s *small) await(what string, so func() bool) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.t.Fatalf("%s does not come; told %q", what, s.heard)
		}
		select {
		case s.k.wake <- struct{}{}:
		default:
		}
	}
}

// status is that of a pod.
func (s *small) status(p *corev1.Pod) corev1.PodStatus {
	for _, has := range s.Pods() {
		if has.UID == p.UID {
			return has.Status
		}
	}
	return corev1.PodStatus{}
}

func (s *small) runs(p *corev1.Pod) bool { return s.status(p).Phase == corev1.PodRunning }

// scratch is the pod's emptyDir.
func (s *small) scratch(p *corev1.Pod) string {
	return filepath.Join(s.disk, "run", string(p.UID), "volumes", "scratch")
}

// start has pods with an emptyDir each, which run.
func (s *small) start(names ...string) map[string]*corev1.Pod {
	s.t.Helper()
	out := map[string]*corev1.Pod{}
	var list []*corev1.Pod
	for i, name := range names {
		p := burstable(i+1, "1m")
		p.Namespace, p.Name = "default", name
		p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		out[name] = p
		list = append(list, p)
	}
	s.Set(list)
	for _, p := range list {
		s.await(p.Name, func() bool { return s.runs(p) })
	}
	return out
}

// TestShortOfDisk evicts the pod that fills the disk of the node, by its bytes or by its
// files, and no other one: what it had is given back before the node is looked at anew.
func TestShortOfDisk(t *testing.T) {
	for name, tt := range map[string]struct {
		threshold, amount, starved string
		fill                       func(dir string) error
	}{
		"bytes": {"nodefs.available", "1Mi", "ephemeral-storage", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "much"), make([]byte, 3<<20+200<<10), 0o600)
		}},
		"inodes": {"nodefs.inodesFree", "100", "inodes", func(dir string) error {
			for i := range 300 {
				err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600)
				if errors.Is(err, fs.ErrNotExist) {
					return nil // somebody has looked meanwhile
				}
				if err != nil {
					return err
				}
			}
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSmall(t, map[string]string{tt.threshold: tt.amount})
			pods := s.start("frugal", "greedy")
			if err := os.WriteFile(filepath.Join(s.scratch(pods["frugal"]), "little"), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			if has := s.k.Pressure(); len(has) > 0 || s.told("EvictionThresholdMet") {
				t.Fatalf("the node is short of it before anybody has used it: %v", has)
			}
			if err := tt.fill(s.scratch(pods["greedy"])); err != nil {
				t.Fatal(err)
			}
			s.await("the eviction", func() bool { return s.status(pods["greedy"]).Phase == corev1.PodFailed })
			if st := s.status(pods["greedy"]); st.Reason != "Evicted" || !strings.HasPrefix(st.Message, "The node was low on resource: "+tt.starved+". Threshold quantity: "+tt.amount) {
				t.Errorf("%s: %s", st.Reason, st.Message)
			}
			s.await("the end of the pressure", func() bool { return len(s.k.Pressure()) == 0 })
			if _, err := os.Stat(s.scratch(pods["greedy"])); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("what has filled the disk is there: %v", err)
			}
			if _, err := os.Stat(filepath.Join(s.scratch(pods["frugal"]), "little")); err != nil || !s.runs(pods["frugal"]) {
				t.Errorf("the other pod is %s: %v", s.status(pods["frugal"]).Phase, err)
			}
			for _, want := range []string{"node Warning EvictionThresholdMet: Attempting to reclaim " + tt.starved, "greedy Warning Evicted: The node was low on resource: " + tt.starved} {
				if !s.told(want) {
					t.Errorf("%q lacks %q", s.heard, want)
				}
			}
		})
	}
}

// TestShortOfProcesses evicts pods of a node that has never as many processes left as are
// asked for, and tells when only critical ones are left.
func TestShortOfProcesses(t *testing.T) {
	pids, err := os.ReadFile("/proc/sys/kernel/pid_max")
	if err != nil {
		t.Fatal(err)
	}
	s := newSmall(t, map[string]string{"pid.available": strings.TrimSpace(string(pids))})
	p := burstable(1, "1m")
	p.Namespace = "default"
	critical := burstable(2, "1m")
	critical.Namespace, critical.Spec.Priority = "default", new(int32(2_000_001_000))
	s.Set([]*corev1.Pod{p, critical})
	s.await("the eviction", func() bool { return s.status(p).Phase == corev1.PodFailed })
	s.await("that nobody is left", func() bool { return s.told("node Warning NoPodToEvict: The node is low on pids") })
	if st := s.status(p); st.Reason != "Evicted" || !strings.HasPrefix(st.Message, "The node was low on resource: pids. ") {
		t.Errorf("%s: %s", st.Reason, st.Message)
	}
	if has := s.k.Pressure(); !slices.Equal(has, []corev1.NodeConditionType{corev1.NodePIDPressure}) || s.status(critical).Phase == corev1.PodFailed {
		t.Errorf("%v, the critical one: %+v", has, s.status(critical))
	}
}
