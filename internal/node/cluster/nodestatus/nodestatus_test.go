package nodestatus

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/probe"
)

var (
	before = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	now    = before.Add(time.Hour)
)

// TestProbesAreOfTheSameRelease as the node says that it is.
func TestProbesAreOfTheSameRelease(t *testing.T) {
	if !strings.HasPrefix(KubeletVersion, "v"+probe.Release+".") {
		t.Errorf("the node is %s, and its probes are of %s", KubeletVersion, probe.Release)
	}
}

func TestConditions(t *testing.T) {
	good := map[corev1.NodeConditionType]string{
		corev1.NodeReady:          "True KubeletReady kubelet is posting ready status",
		corev1.NodeMemoryPressure: "False KubeletHasSufficientMemory kubelet has sufficient memory available",
		corev1.NodeDiskPressure:   "False KubeletHasNoDiskPressure kubelet has no disk pressure",
		corev1.NodePIDPressure:    "False KubeletHasSufficientPID kubelet has sufficient PID available",
	}
	for name, tt := range map[string]struct {
		facts Facts
		want  map[corev1.NodeConditionType]string
	}{
		"all is well": {},
		"memory":      {Facts{Pressure: Pressure{Memory: true}}, map[corev1.NodeConditionType]string{corev1.NodeMemoryPressure: "True KubeletHasInsufficientMemory kubelet has insufficient memory available"}},
		"disk":        {Facts{Pressure: Pressure{Disk: true}}, map[corev1.NodeConditionType]string{corev1.NodeDiskPressure: "True KubeletHasDiskPressure kubelet has disk pressure"}},
		"pids":        {Facts{Pressure: Pressure{PIDs: true}}, map[corev1.NodeConditionType]string{corev1.NodePIDPressure: "True KubeletHasInsufficientPID kubelet has insufficient PID available"}},
		"not ready": {
			Facts{NotReady: []string{"node is shutting down"}, Runtime: Runtime{NotReady: []string{"container runtime is down"}}},
			map[corev1.NodeConditionType]string{corev1.NodeReady: "False KubeletNotReady container runtime is down; node is shutting down"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range Conditions(tt.facts, nil, now) {
				want := good[c.Type]
				if w, ok := tt.want[c.Type]; ok {
					want = w
				}
				if got := fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message); got != want {
					t.Errorf("%s is %q, want %q", c.Type, got, want)
				}
			}
		})
	}
}

func TestTimesOfConditions(t *testing.T) {
	had := Conditions(Facts{}, nil, before)
	for _, c := range Conditions(Facts{Pressure: Pressure{Disk: true}}, had, now) {
		want := before
		if c.Type == corev1.NodeDiskPressure {
			want = now
		}
		if !c.LastTransitionTime.Equal(&metav1.Time{Time: want}) || !c.LastHeartbeatTime.Equal(&metav1.Time{Time: now}) {
			t.Errorf("%s changed at %s and was told at %s, want %s and %s", c.Type, c.LastTransitionTime, c.LastHeartbeatTime, want, now)
		}
	}
}

func TestImages(t *testing.T) {
	var images []corev1.ContainerImage
	for i := range 60 {
		images = append(images, corev1.ContainerImage{Names: []string{"c", "b", "a", "f", "e", "d"}, SizeBytes: int64(i)})
	}
	got := Of(Facts{Images: images}, nil, now).Images
	if len(got) != 50 || got[0].SizeBytes != 59 || got[49].SizeBytes != 10 {
		t.Errorf("there are %d images, of %d to %d bytes; want 50, of 59 to 10", len(got), got[0].SizeBytes, got[len(got)-1].SizeBytes)
	}
	if want := []string{"a", "b", "c", "d", "e"}; !reflect.DeepEqual(got[0].Names, want) {
		t.Errorf("the names are %v, want %v", got[0].Names, want)
	}
	for most, want := range map[int]int{-1: 60, 0: 0, 7: 7, 100: 60} {
		if got := Of(Facts{Images: images, MaxImages: &most}, nil, now).Images; len(got) != want {
			t.Errorf("at most %d: %d images, want %d", most, len(got), want)
		}
	}
	if images[0].Names[0] != "c" {
		t.Error("the caller's images are changed")
	}
}

func TestFromRuntime(t *testing.T) {
	if got := FromRuntime(nil, errors.New("refused")).NotReady; !reflect.DeepEqual(got, []string{"container runtime is down: refused"}) {
		t.Errorf("a runtime that is down is told as %q", got)
	}
	got := FromRuntime(&runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: "RuntimeReady", Status: true},
			{Type: "NetworkReady", Reason: "NetworkPluginNotReady", Message: "no conflist"},
		}},
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{{Name: "runc", Features: &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true}}, {Name: "bare"}},
		Features:        &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
	}, nil)
	want := Runtime{
		NotReady: []string{"container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:no conflist"},
		Handlers: []corev1.NodeRuntimeHandler{
			{Name: "runc", Features: &corev1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: new(false), UserNamespaces: new(true)}}, {Name: "bare"},
		},
		Features: &corev1.NodeFeatures{SupplementalGroupsPolicy: new(true)},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if s := Of(Facts{Runtime: got}, nil, now); s.RuntimeHandlers[0].Name != "bare" {
		t.Errorf("the handlers are in the order %v, want by name", s.RuntimeHandlers)
	}
}

func TestMachine(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"etc/machine-id": "abc\n", "proc/sys/kernel/random/boot_id": "boot-1\n",
		"etc/os-release": "NAME=x\nPRETTY_NAME=\"Some Linux 12\"\n",
		"proc/meminfo":   "MemTotal: 5 kB\nSwapTotal:   2 kB\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Machine(root, "fairlead://1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	if got.MachineID != "abc" || got.SystemUUID != "abc" || got.BootID != "boot-1" || got.OSImage != "Some Linux 12" || *got.Swap.Capacity != 2048 || got.KernelVersion == "" {
		t.Errorf("got %+v", got)
	}
	if _, err := Machine("/", "fairlead://1.0.0"); err != nil {
		t.Error(err)
	}
}

func TestAddresses(t *testing.T) {
	got := Addresses("n", netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1"))
	want := []corev1.NodeAddress{{Type: "InternalIP", Address: "10.0.0.1"}, {Type: "InternalIP", Address: "fd00::1"}, {Type: "Hostname", Address: "n"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if ip, err := DefaultIP("127.0.0.1:6443"); err == nil {
		t.Errorf("loopback is no address for others, got %s", ip)
	}
}
