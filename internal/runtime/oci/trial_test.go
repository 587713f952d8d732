package oci

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A daemon that was killed during a trial left its folder.
func TestTrialsOfADeadDaemonEnd(t *testing.T) {
	d := testDriver(t)
	def := fakeRuntime(t, `case "$1" in --version) echo "fakerun version 1.2.3"; exit;; delete) fail "container does not exist";; esac; missing`)
	base := filepath.Join(d.cfg.StateDir, trialsFolder)
	for name, config := range map[string]string{"fake-0001": "", "fake-0002": "{", "fake-2-0003": "", "fake-0004": ""} {
		if err := os.MkdirAll(filepath.Join(base, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if config == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(base, name, "config.json"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	end := d.trials.begin("fake-0004")
	if got := d.Probe(t.Context(), def); !got.Ready {
		t.Fatalf("%+v", got)
	}
	end()
	var left []string
	entries, err := os.ReadDir(base)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	// One is of another handler, one under way.
	if want := []string{"fake-0004", "fake-2-0003"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left %v %v, want %v", left, err, want)
	}
}
