package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"fairlead.run/internal/errdefs"
)

func TestFits(t *testing.T) {
	dir := t.TempDir()
	if err := fits(dir, 1); err != nil {
		t.Error("on cgroup v1:", err)
	}
	for name, text := range map[string]string{"memory.current": "1000\n", "memory.stat": "anon 300\nfile 700\nshmem 200\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for limit, want := range map[int64]error{-1: nil, 499: errdefs.ErrPrecondition, 500: nil, 5000: nil} {
		if err := fits(dir, limit); !errors.Is(err, want) {
			t.Errorf("a limit of %d: %v", limit, err)
		}
	}
}
