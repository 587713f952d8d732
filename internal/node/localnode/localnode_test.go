package localnode

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestSizeOf(t *testing.T) {
	text := []byte("MemTotal:       24682700 kB\nSwapCached:            7 kB\nSwapTotal:          2048 kB\nBroken:\n")
	for name, want := range map[string]int64{"MemTotal:": 24682700 << 10, "SwapTotal:": 2 << 20, "Broken:": 0, "None:": 0} {
		if got := sizeOf(text, name); got != want {
			t.Errorf("%s %d, want %d", name, got, want)
		}
	}
}

// TestHugePageSizes has all sizes of pages that the kernel has, as the CRI writes them.
func TestHugePageSizes(t *testing.T) {
	folders, err := filepath.Glob("/sys/kernel/mm/hugepages/hugepages-*kB")
	if err != nil {
		t.Fatal(err)
	}
	got := Gather(t.TempDir()).HugePageSizes
	if len(got) != len(folders) {
		t.Errorf("%q, and the kernel has %q", got, folders)
	}
	for folder, size := range map[string]string{"hugepages-2048kB": "2MB", "hugepages-1048576kB": "1GB"} {
		if there := slices.Contains(folders, filepath.Join("/sys/kernel/mm/hugepages", folder)); slices.Contains(got, size) != there {
			t.Errorf("%q, and %s is %t", got, folder, there)
		}
	}
}

func TestSwapCounted(t *testing.T) {
	for name, tt := range map[string]struct {
		own, file string
		want      bool
	}{
		"its own":           {"0::/a/b\n", "a/b/memory.swap.max", true},
		"not its own":       {"0::/a/b\n", "a/b/memory.max", false},
		"at the top":        {"0::/\n", "system/memory.swap.max", true},
		"nothing is known":  {"", "memory.max", false},
		"not counted there": {"0::/\n", "system/memory.max", false},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			for path, text := range map[string]string{"proc": tt.own, tt.file: "max\n"} {
				path = filepath.Join(top, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := swapCounted(filepath.Join(top, "proc"), top); got != tt.want {
				t.Error(got)
			}
		})
	}
}

// TestLasting has the addresses that there are, as a network may come after the agent, and
// keeps them while it is away.
func TestLasting(t *testing.T) {
	var has []string
	ask := lasting(func() []string { return has })
	for _, step := range []struct{ has, want []string }{
		{nil, []string{"127.0.0.1"}},
		{[]string{"192.0.2.7"}, []string{"192.0.2.7"}},
		{nil, []string{"192.0.2.7"}},
		{[]string{"192.0.2.8", "fd00::8"}, []string{"192.0.2.8", "fd00::8"}},
	} {
		has = step.has
		if got := ask(); !slices.Equal(got, step.want) {
			t.Errorf("%q, and the network has %q, want %q", got, step.has, step.want)
		}
	}
}
