package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTryShares(t *testing.T) {
	for _, name := range []string{"cpu.shares", "cpu.weight"} {
		dir := t.TempDir()
		g := &Group{Dirs: []string{t.TempDir(), dir}}
		if err := g.TryShares(512); err == nil {
			t.Error("a cgroup without shares takes them")
		}
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte("100\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := g.TryShares(512); err != nil {
			t.Error(err)
		}
		if err := g.TryShares(512); err == nil {
			t.Error("nothing changes, and nobody says so")
		}
	}
}

func TestMeasured(t *testing.T) {
	for _, test := range []struct {
		memory, cpu string
		want        bool
	}{{"4096", "12", true}, {"0", "12", false}, {"", "12", false}, {"4096", "", false}} {
		dir := t.TempDir()
		for name, text := range map[string]string{"memory.current": test.memory, "cpu.stat": test.cpu} {
			if text == "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := (&Group{Dirs: []string{dir}}).Measured(); (err == nil) != test.want {
			t.Errorf("%+v: %v", test, err)
		}
	}
}
