package resources

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/agent"
	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/cgroups"
	"fairlead.run/internal/node/eviction"
	"fairlead.run/internal/node/shutdown"
)

// silent is a runtime that does not say which driver it has.
type silent struct {
	runtimeapi.RuntimeServiceClient
}

func (silent) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest, ...grpc.CallOption) (*runtimeapi.RuntimeConfigResponse, error) {
	return nil, status.Error(codes.Unimplemented, "too old")
}

// homeless is an image service that does not say where its images are.
type homeless struct{ runtimeapi.ImageServiceClient }

func (homeless) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest, ...grpc.CallOption) (*runtimeapi.ImageFsInfoResponse, error) {
	return nil, status.Error(codes.Unimplemented, "too old")
}

// some are pods that are there.
type some []*corev1.Pod

func (s some) Pods() []*corev1.Pod { return s }

func burstable(number int, cpu string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%d", number), UID: types.UID(fmt.Sprintf("0d6f7a0c-2c2f-4a8e-9d0a-%012d", number))}}
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}}
	return p
}

// TestTree shares the processors out whenever a pod comes or has ended, and leaves
// nothing when the last one is gone.
func TestTree(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make cgroups")
	}
	root := fmt.Sprintf("fairlead-test-resources-%d", os.Getpid())
	k, err := New(t.Context(), Config{
		Settings: Settings{Cgroups: Cgroups{Driver: cgroups.Cgroupfs, Root: root}},
		Runtime:  silent{}, Images: homeless{}, Folder: t.TempDir(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	if want := "/" + root + "/kubepods"; k.CgroupName() != want {
		t.Errorf("pods are in %s, want %s", k.CgroupName(), want)
	}
	a, b := burstable(1, "500m"), burstable(2, "300m")
	ended := burstable(3, "4")
	ended.Status.Phase = corev1.PodSucceeded
	if err := k.cgroups.Share(t.Context(), running(some{a, b, ended})); err != nil {
		t.Fatal(err)
	}
	tier := filepath.Join(k.cgroups.Top(), "burstable")
	for file, want := range map[string]string{"../../../../cpu" + k.CgroupName() + "/burstable/cpu.shares": "819", "cpu.weight": "32"} {
		if text, err := os.ReadFile(filepath.Join(tier, file)); err == nil && strings.TrimSpace(string(text)) != want {
			t.Errorf("burstable pods have %s in %s, want %s", text, file, want)
		}
	}
	if err := k.Cgroups().Ensure(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	k.Close()
	if left, err := k.cgroups.Pods(); err != nil || len(left) != 1 {
		t.Errorf("closed with a pod: %q, %v", left, err)
	}
	if err := k.Cgroups().Remove(t.Context(), a.UID); err != nil {
		t.Fatal(err)
	}
	k.Close()
	if _, err := os.Stat(filepath.Dir(k.cgroups.Top())); !os.IsNotExist(err) {
		t.Errorf("left without a pod: %v", err)
	}
}

// TestLimitOfAllPods is refused by the kernel at first, which is told once, and tried again.
func TestLimitOfAllPods(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make cgroups")
	}
	cfg := Config{Runtime: silent{}, Log: slog.New(slog.DiscardHandler)}
	cfg.Settings.Cgroups = Cgroups{Driver: cgroups.Cgroupfs, Root: fmt.Sprintf("fairlead-test-limit-%d", os.Getpid())}
	made, err := newTree(t.Context(), cfg, capacity.Together{Pids: 1 << 40}) // more than there are
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = made.Clear(context.Background()) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	limited := func() bool {
		for _, dir := range []string{made.Top(), "/sys/fs/cgroup/pids" + made.Name()} {
			if text, err := os.ReadFile(filepath.Join(dir, "pids.max")); err == nil {
				return strings.TrimSpace(string(text)) == "77"
			}
		}
		return false
	}
	told := 0
	made.run(ctx, some{}, Tell{Node: func(kind, reason, message string) {
		if told++; kind != corev1.EventTypeWarning || reason != failedLimit || !strings.Contains(message, "Nothing limits all pods together") || !strings.Contains(message, "invalid argument") {
			t.Errorf("%s %s: %s", kind, reason, message)
		}
		made.all.Pids = 77
		made.poke()
		go func() {
			for !limited() && ctx.Err() == nil {
				time.Sleep(10 * time.Millisecond)
			}
			cancel()
		}()
	}})
	if told != 1 || !limited() {
		t.Errorf("told %d times, and the limit is set: %t", told, limited())
	}
}

// TestOff leaves cgroups to the runtime, which is not even asked.
func TestOff(t *testing.T) {
	k, err := New(t.Context(), Config{Settings: Settings{Cgroups: Cgroups{Off: true}}, Images: homeless{}, Folder: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if k.Cgroups() != nil || k.CgroupName() != "" || len(k.Node().Allocatable) == 0 {
		t.Errorf("%v %q %v", k.Cgroups(), k.CgroupName(), k.Node())
	}
	k.Close()
}

// keeper is one of a node with two processors' worth for pods.
func keeper(manifests bool) *Keeper {
	k := &Keeper{stats: newMetrics()}
	k.eviction, k.shutdown = eviction.New(eviction.Config{}, evictor{k}), shutdown.New(shutdown.Config{}, downer{k})
	k.cfg.Manifests = manifests
	k.cfg.Node = func() *corev1.Node {
		n := &corev1.Node{}
		n.Name, n.Labels = "n", map[string]string{"disk": "fast"}
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("99"), "example.com/card": resource.MustParse("1")}
		return n
	}
	k.node.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourcePods: resource.MustParse("9")}
	return k
}

// TestAdmit says no in the kubelet's words: for good in a cluster, and until there is room
// on one machine, where a pod is not critical because it comes from a manifest.
func TestAdmit(t *testing.T) {
	static := func(number int, cpu string) *corev1.Pod {
		p := burstable(number, cpu)
		p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		return p
	}
	important := func(p *corev1.Pod, n int32) *corev1.Pod {
		p.Spec.Priority = &n
		return p
	}
	waits := func(p *corev1.Pod) *corev1.Pod {
		p.Spec.PreemptionPolicy = new(corev1.PreemptNever)
		return p
	}
	elsewhere := burstable(4, "1m")
	elsewhere.Spec.NodeSelector = map[string]string{"disk": "slow"}
	for name, tt := range map[string]struct {
		manifests bool
		pod       *corev1.Pod
		running   some
		want      string
		displaces int
	}{
		"fits":                                 {false, burstable(1, "1"), some{burstable(2, "1")}, "", 0},
		"does not":                             {false, burstable(1, "1100m"), some{burstable(2, "1")}, "OutOfcpu: Node didn't have enough resource: cpu, requested: 1100, used: 1000, capacity: 2000, again false", 0},
		"does not on a machine":                {true, static(1, "1100m"), some{static(2, "1")}, "OutOfcpu: Node didn't have enough resource: cpu, requested: 1100, used: 1000, capacity: 2000, again true", 0},
		"a static pod displaces":               {false, static(1, "1100m"), some{burstable(2, "1")}, "", 1},
		"one less important goes on a machine": {true, important(static(1, "1100m"), 5), some{static(2, "1")}, "", 1},
		"one as important does not":            {true, important(static(1, "1100m"), 5), some{important(static(2, "1"), 5)}, "OutOfcpu: Node didn't have enough resource: cpu, requested: 1100, used: 1000, capacity: 2000, again true", 0},
		"none goes for one that waits":         {true, waits(important(static(1, "1100m"), 5)), some{static(2, "1")}, "OutOfcpu: Node didn't have enough resource: cpu, requested: 1100, used: 1000, capacity: 2000, again true", 0},
		"in a cluster that is the scheduler's": {false, important(burstable(1, "1100m"), 5), some{burstable(2, "1")}, "OutOfcpu: Node didn't have enough resource: cpu, requested: 1100, used: 1000, capacity: 2000, again false", 0},
		"is for another node":                  {false, elsewhere, nil, "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector, again false", 0},
	} {
		t.Run(name, func(t *testing.T) {
			k := keeper(tt.manifests)
			d, err := k.Admit(tt.pod, tt.running, nil)
			got := ""
			var r *agent.Refusal
			if errors.As(err, &r) {
				got = fmt.Sprintf("%s: %s, again %v", r.Reason, r.Message, r.Again)
			}
			if got != tt.want || len(d.Pods) != tt.displaces || err != nil && !r.Rejected {
				t.Errorf("%q, displaces %d; want %q, %d", got, len(d.Pods), tt.want, tt.displaces)
			}
			if tt.manifests && tt.pod.Annotations["kubernetes.io/config.source"] == "" {
				t.Error("the pod was changed")
			}
			var counted strings.Builder
			if err := k.Metrics(&counted); err != nil || strings.Contains(counted.String(), `kubelet_admission_rejections_total{reason="OutOfcpu"} 1`) != strings.HasPrefix(tt.want, "OutOfcpu") {
				t.Errorf("%v, counted %s", err, &counted)
			}
		})
	}
}

// TestAdmitBehind has a pod wait for those that leave, and for no more of them than it needs.
func TestAdmitBehind(t *testing.T) {
	running, leaving := some{burstable(2, "500m")}, some{burstable(3, "500m"), burstable(4, "500m")}
	for cpu, want := range map[string]int{"500m": 0, "1": 1, "1500m": 2} {
		d, err := keeper(false).Admit(burstable(1, cpu), running, leaving)
		if err != nil || len(d.Behind) != want || len(d.Pods) > 0 {
			t.Errorf("%s: %v, behind %d, want %d", cpu, err, len(d.Behind), want)
		}
	}
	if _, err := keeper(false).Admit(burstable(1, "1600m"), running, leaving); err == nil {
		t.Error("it is let in for good")
	}
	static := burstable(1, "1500m")
	static.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	if d, err := keeper(false).Admit(static, some{burstable(2, "1")}, some{burstable(3, "500m")}); err != nil || len(d.Pods) != 1 || len(d.Behind) != 0 {
		t.Errorf("%v, %d displaced, behind %d", err, len(d.Pods), len(d.Behind))
	}
}

// TestResize says whether to wait or that it is of no use.
func TestResize(t *testing.T) {
	for asks, want := range map[string]string{"1": "", "1500m": corev1.PodReasonDeferred, "3": corev1.PodReasonInfeasible} {
		if got, message := keeper(false).Resize(burstable(1, asks), some{burstable(2, "1")}); got != want {
			t.Errorf("%s: %q %q, want %q", asks, got, message, want)
		}
	}
}

// TestAdmitWithoutNode lets static pods in before the API server has the node's object.
// One that asks for a label of that object is refused until it is there.
func TestAdmitWithoutNode(t *testing.T) {
	k := keeper(false)
	has := k.cfg.Node()
	k.cfg.Name, k.cfg.Node = "n", func() *corev1.Node { return nil }
	static := func(number int, labels map[string]string) *corev1.Pod {
		p := burstable(number, "1")
		p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		p.Spec.NodeName, p.Spec.NodeSelector = "n", labels
		return p
	}
	if _, err := k.Admit(static(1, map[string]string{corev1.LabelHostname: "n", corev1.LabelOSStable: "linux"}), nil, nil); err != nil {
		t.Error(err)
	}
	waits := static(2, map[string]string{"disk": "fast"})
	var r *agent.Refusal
	if _, err := k.Admit(waits, nil, nil); !errors.As(err, &r) || r.Reason != "NodeAffinity" || !r.Again {
		t.Errorf("%v, %+v", err, r)
	}
	with := has.DeepCopy()
	with.Name, with.Labels = "n", map[string]string{"disk": "fast"}
	k.cfg.Node = func() *corev1.Node { return with }
	if _, err := k.Admit(waits, nil, nil); err != nil {
		t.Error(err)
	}
}
