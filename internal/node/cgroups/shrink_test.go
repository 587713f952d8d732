package cgroups

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAffords refuses a limit of memory below what is in use, but not one that is no less than
// the last, as which it is written again after a restart.
func TestAffords(t *testing.T) {
	for _, tt := range []struct {
		name, has, uses string
		limit           int64
		refused         bool
	}{
		{"less than it uses", "200000000\n", "150000000\n", 100000000, true},
		{"the first limit, less than it uses", "max\n", "150000000\n", 100000000, true},
		{"less, and enough", "200000000\n", "50000000\n", 100000000, false},
		{"the same", "100000000\n", "100000000\n", 100000000, false},
		{"more", "100000000\n", "100000000\n", 200000000, false},
		{"none", "100000000\n", "100000000\n", unlimited, false},
		{"no such cgroup", "", "", 100000000, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{"memory.max": tt.has, "memory.current": tt.uses} {
				if text == "" {
					continue
				}
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err := affords(dir, tt.limit)
			if (err != nil) != tt.refused || tt.refused && !strings.Contains(err.Error(), "memory limit (100000000) below current usage (144 MiB)") {
				t.Errorf("%v", err)
			}
		})
	}
}
