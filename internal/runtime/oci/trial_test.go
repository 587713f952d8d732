package oci

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/runtime"
)

// One failure of a trial does not take a handler from the pods; two do.
func TestTrialIsRepeated(t *testing.T) {
	for failures, ready := range map[int]bool{1: true, 2: false} {
		d := testDriver(t)
		count := filepath.Join(t.TempDir(), "count")
		def := fakeRuntime(t, `case "$1" in --version) echo "fakerun version 1.2.3"; exit;; features) exit 1;; delete) fail "container does not exist";; esac
echo >>`+count+`
test $(wc -l <`+count+`) -gt `+strconv.Itoa(failures)+` || fail "creating cgroup directory: No such file or directory"
ran "$@"`)
		if got := d.Probe(t.Context(), def); got.Ready != ready {
			t.Errorf("after %d failures: %+v", failures, got)
		}
	}
}

// A daemon that was killed during a trial left its folder.
func TestTrialsOfADeadDaemonEnd(t *testing.T) {
	d := testDriver(t)
	def := fakeRuntime(t, `case "$1" in --version) echo "fakerun version 1.2.3"; exit;; delete) fail "container does not exist";; esac; ran "$@"`)
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

// What cannot be cleaned up is told, also if something else was not there at all.
func TestEndTrialTells(t *testing.T) {
	d := testDriver(t)
	program := filepath.Join(t.TempDir(), "fakerun")
	if err := os.WriteFile(program, []byte("#!/nowhere/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	bundle := filepath.Join(d.cfg.StateDir, trialsFolder, "fake-0001")
	def := runtime.Definition{Name: "fake", Handler: v1alpha1.Handler{Path: program}}
	for config, want := range map[string]string{
		"":  "",
		"{": "",
		`{"linux":{"cgroupsPath":"/fairlead-trial-0001/trial-0001"}}`: program + ": no such file or directory",
		`{"linux":{"cgroupsPath":"/"}}`:                               "is not one of a container",
	} {
		if err := os.MkdirAll(bundle, 0o700); err != nil {
			t.Fatal(err)
		}
		if config != "" {
			if err := os.WriteFile(filepath.Join(bundle, "config.json"), []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := d.endTrial(t.Context(), tool{def: def, root: d.root(def)}, bundle, trialPrefix+"0001")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
		if exists(bundle) {
			t.Errorf("%s: the bundle is left", config)
		}
	}
}

// A handler that is configured no more is never tried again, and what its last
// trial has left goes all the same.
func TestSweepTrials(t *testing.T) {
	d := testDriver(t)
	base := filepath.Join(d.cfg.StateDir, trialsFolder)
	state := filepath.Join(d.cfg.StateDir, "runtimes", "gone-2", trialPrefix+"0001")
	config := `{"linux":{"cgroupsPath":"/fairlead-trial-0001/trial-0001"}}`
	for _, dir := range []string{filepath.Join(base, "gone-2-0001", "rootfs"), filepath.Join(base, "0002"), filepath.Join(base, "busy-0003"), state} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(base, "gone-2-0001", "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	end := d.trials.begin("busy-0003")
	if again := d.trials.begin("other", "busy-0003"); again != nil {
		t.Error("two are at one trial")
	}
	k := Keeper{Driver: d}
	if err := k.SweepTrials(t.Context()); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(base + "/*")
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != "busy-0003" {
		t.Errorf("left %v %v", left, err)
	}
	if _, err := os.Stat(state); err == nil {
		t.Error("what the runtime kept of the trial is still there")
	}
	end()
	if err := k.SweepTrials(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(base + "/*"); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}
