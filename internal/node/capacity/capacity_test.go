package capacity

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// amounts reads pairs: "cpu", "1", "memory", "1Gi".
func amounts(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func same(a, b corev1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for what, q := range a {
		other, ok := b[what]
		if !ok || q.Cmp(other) != 0 {
			return false
		}
	}
	return true
}

func TestReadAMachine(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{
		"proc/meminfo":                                              "MemTotal:        4096 kB\nMemFree:            1 kB\n",
		"proc/sys/kernel/pid_max":                                   "32768\n",
		"proc/sys/kernel/threads-max":                               "5000\n",
		"sys/devices/system/cpu/online":                             "0-2,5\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":     "3\n",
		"sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages":  "0\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages":   "1\n",
		"sys/kernel/mm/hugepages/hugepages-1048576kB/surplus_pages": "1\n",
	} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := Host{Proc: filepath.Join(dir, "proc"), Sys: filepath.Join(dir, "sys"), Folder: dir}
	m, err := h.Read()
	if err != nil {
		t.Fatal(err)
	}
	if m.CPUs != 4 || m.Memory != 4<<20 || m.Pids != 5000 || m.Hugepages["hugepages-2Mi"] != 6<<20 || len(m.Hugepages) != 2 || m.Disk <= 0 {
		t.Errorf("read %+v", m)
	}
	pages := func(name, size, amount string) *corev1.Pod {
		p := &corev1.Pod{}
		p.Name, p.Spec.Containers = name, []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: amounts("cpu", "1", size, amount)}}}
		return p
	}
	for want, pods := range map[string][]*corev1.Pod{
		"":                             {pages("a", "hugepages-2Mi", "2Mi"), pages("b", "hugepages-2Mi", "4Mi"), {}},
		"ask for 8Mi of hugepages-2Mi": {pages("a", "hugepages-2Mi", "4Mi"), pages("b", "hugepages-2Mi", "4Mi")},
		"64Ki of hugepages-64Ki, and the machine has 0": {pages("a", "hugepages-64Ki", "64Ki")},
	} {
		if err := h.CheckPages(pods); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("pages: %v, want %q", err, want)
		}
	}
	for _, broken := range []string{"proc/meminfo", "proc/sys/kernel/pid_max", "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"} {
		was, err := os.ReadFile(filepath.Join(dir, broken))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, broken), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Read(); err == nil || !strings.Contains(err.Error(), broken) {
			t.Errorf("%s is broken, and the error is %v", broken, err)
		}
		if err := os.WriteFile(filepath.Join(dir, broken), was, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// This machine, whatever it is.
func TestReadThisMachine(t *testing.T) {
	m, err := Host{Proc: "/proc", Sys: "/sys", Folder: t.TempDir()}.Read()
	if err != nil || m.CPUs < 1 || m.Memory < 1<<20 || m.Pids < 100 || m.Disk < 1 {
		t.Errorf("read %+v, %v", m, err)
	}
}

func TestCountCPUs(t *testing.T) {
	for list, want := range map[string]int{"0": 1, "0-3": 4, "0-1,4,6-7": 5, "": 0, "x": 0, "3-1": 0, "1-": 0} {
		if got := countCPUs(list); got != want {
			t.Errorf("%q: %d, want %d", list, got, want)
		}
	}
}

func TestAllocatable(t *testing.T) {
	machine := Machine{CPUs: 4, Memory: 8 << 30, Disk: 100 << 30, Pids: 10_000, Hugepages: map[string]int64{"hugepages-2Mi": 1 << 30, "hugepages-1Gi": 0}}
	for _, tt := range []struct {
		name        string
		settings    Settings
		allocatable corev1.ResourceList
		together    Together
	}{
		{
			"nothing kept back",
			Settings{},
			amounts("cpu", "4", "memory", "7Gi", "ephemeral-storage", "100Gi", "pods", "110", "hugepages-2Mi", "1Gi", "hugepages-1Gi", "0"),
			Together{MilliCPU: 4000, Memory: 8 << 30, Pids: 10_000},
		},
		{
			"reserved and evicted",
			Settings{
				MaxPods: 50, PodsPerCPU: 10,
				SystemReserved: amounts("cpu", "500m", "memory", "512Mi", "pid", "1000"),
				KubeReserved:   amounts("cpu", "500m", "memory", "512Mi", "ephemeral-storage", "10Gi"),
				Evicted:        amounts("memory", "1Gi", "ephemeral-storage", "10Gi"),
			},
			amounts("cpu", "3", "memory", "5Gi", "ephemeral-storage", "80Gi", "pods", "40", "hugepages-2Mi", "1Gi", "hugepages-1Gi", "0"),
			Together{MilliCPU: 3000, Memory: 7 << 30, Pids: 9000},
		},
		{
			"a limit per CPU that is larger",
			Settings{MaxPods: 20, PodsPerCPU: 10},
			amounts("cpu", "4", "memory", "7Gi", "ephemeral-storage", "100Gi", "pods", "20", "hugepages-2Mi", "1Gi", "hugepages-1Gi", "0"),
			Together{MilliCPU: 4000, Memory: 8 << 30, Pids: 10_000},
		},
	} {
		got, err := tt.settings.Of(machine)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if !same(got.Allocatable, tt.allocatable) {
			t.Errorf("%s: allocatable %v, want %v", tt.name, got.Allocatable, tt.allocatable)
		}
		if got.Together != tt.together {
			t.Errorf("%s: together %+v, want %+v", tt.name, got.Together, tt.together)
		}
	}
	has := amounts("cpu", "4", "memory", "8Gi", "ephemeral-storage", "100Gi", "pods", "110", "hugepages-2Mi", "1Gi", "hugepages-1Gi", "0")
	if got, _ := (Settings{}).Of(machine); !same(got.Capacity, has) {
		t.Errorf("capacity %v, want %v", got.Capacity, has)
	}
	_, err := Settings{KubeReserved: amounts("cpu", "3"), SystemReserved: amounts("cpu", "2")}.Of(machine)
	if err == nil || err.Error() != "5 of cpu is kept back for the system and for eviction, and the node has 4; reserve less" {
		t.Errorf("too much is reserved: %v", err)
	}
}

func TestParseReserved(t *testing.T) {
	got, err := ParseReserved(map[string]string{"cpu": "500m", "memory": "1Gi", "pid": "100"})
	if err != nil || !same(got, amounts("cpu", "500m", "memory", "1Gi", "pid", "100")) {
		t.Errorf("%v, %v", got, err)
	}
	_, err = ParseReserved(map[string]string{"gpu": "1", "cpu": "lots", "memory": "-1Gi"})
	for _, want := range []string{
		`"gpu" cannot be reserved; use cpu, memory, ephemeral-storage, pid`,
		`reserved cpu: "lots" is no quantity`, "reserved memory: -1Gi is less than nothing",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, and lacks %q", err, want)
		}
	}
}
