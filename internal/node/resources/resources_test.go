package resources

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/cgroups"
)

// silent is a runtime that does not say which driver it has.
type silent struct{}

func (silent) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest, ...grpc.CallOption) (*runtimeapi.RuntimeConfigResponse, error) {
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
		Runtime:  silent{}, Folder: t.TempDir(), Log: slog.New(slog.DiscardHandler),
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

// TestOff leaves cgroups to the runtime, which is not even asked.
func TestOff(t *testing.T) {
	k, err := New(t.Context(), Config{Settings: Settings{Cgroups: Cgroups{Off: true}}, Folder: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if k.Cgroups() != nil || k.CgroupName() != "" || len(k.Node().Allocatable) == 0 {
		t.Errorf("%v %q %v", k.Cgroups(), k.CgroupName(), k.Node())
	}
	k.Close()
}
