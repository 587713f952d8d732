package oci

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/runtime"
)

// TestSealed fails if crun is made to copy itself at each start and exec, or if
// a runtime that gains nothing is copied into memory.
func TestSealed(t *testing.T) {
	for name, want := range map[string]bool{"crun": true, "runc": false} {
		m, state := &fakeMonitor{}, t.TempDir()
		d, err := New(Config{StateDir: state, Monitor: m, StandIn: monitorBinary})
		if err != nil {
			t.Fatal(err)
		}
		h := d.Open(runtime.Definition{Name: name, Handler: v1alpha1.Handler{Path: "/bin/true"}}, func() pod.HandlerInfo { return pod.HandlerInfo{Runtime: name} })
		bundle := h.folder("c1")
		if err := os.MkdirAll(bundle, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(bundle, "config.json"), []byte(`{"process":{"args":["x"]}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Start(t.Context(), pod.StartRequest{ID: "c1", Bundle: pod.Bundle{Path: bundle}}); err != nil {
			t.Errorf("start: %v", err)
		}
		if _, err := h.Exec(t.Context(), pod.ExecRequest{Container: &pod.Container{ID: "c1"}, Command: []string{"x"}}); err != nil {
			t.Errorf("exec: %v", err)
		}
		if !slices.Equal(m.sealed, []bool{want, want}) {
			t.Errorf("%s: sealed %v", name, m.sealed)
		}
	}
}

// TestCallsOfTheDaemonAreSealed is the same for what the daemon runs itself.
func TestCallsOfTheDaemonAreSealed(t *testing.T) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("needs a static busybox (Debian package busybox-static)")
	}
	for name, want := range map[string]string{"crun": "/memfd:busybox (deleted)\n", "runc": busybox + "\n"} {
		d, err := New(Config{StateDir: t.TempDir(), Monitor: &fakeMonitor{}})
		if err != nil {
			t.Fatal(err)
		}
		h := d.Open(runtime.Definition{Name: name, Handler: v1alpha1.Handler{Path: busybox}}, func() pod.HandlerInfo { return pod.HandlerInfo{Runtime: name} })
		out, err := runFrom(t.Context(), h.from(), []string{busybox, "readlink", "/proc/self/exe"})
		if err != nil || string(out) != want {
			t.Errorf("%s: %q %v", name, out, err)
		}
	}
}

// TestDeletesOnce fails if a runtime is asked to delete what it has no folder
// of, or if one is not asked whose folders are not known.
func TestDeletesOnce(t *testing.T) {
	for _, tt := range []struct {
		runtime      string
		known, asked bool
	}{{"runc", false, false}, {"crun", false, false}, {"runc", true, true}, {"crun", true, true}, {"other", false, true}, {"", false, true}} {
		dir := t.TempDir()
		program := filepath.Join(dir, "program")
		if err := os.WriteFile(program, []byte("#!/bin/sh\ntouch "+dir+"/asked\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		d, err := New(Config{StateDir: dir, Monitor: &fakeMonitor{}})
		if err != nil {
			t.Fatal(err)
		}
		def := runtime.Definition{Name: "x", Handler: v1alpha1.Handler{Path: program}}
		if tt.known {
			if err := os.MkdirAll(filepath.Join(d.root(def), "c1"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		h := d.Open(def, func() pod.HandlerInfo { return pod.HandlerInfo{Runtime: tt.runtime} })
		if err := h.Delete(t.Context(), "c1"); err != nil {
			t.Errorf("%+v: %v", tt, err)
		}
		if asked := exists(filepath.Join(dir, "asked")); asked != tt.asked {
			t.Errorf("%+v: asked %t", tt, asked)
		}
	}
}

// TestDeletesFolders fails if a runtime is started to delete what is nothing but
// a folder, or if it is not although it may have more to do.
func TestDeletesFolders(t *testing.T) {
	const cgroup = `"cgroupsPath":"/fairlead-test/none"`
	for name, tt := range map[string]struct {
		runtime, config string
		systemd, asked  bool
	}{
		"runc":             {runtime: "runc", config: `{"linux":{` + cgroup + `}}`},
		"crun":             {runtime: "crun", config: `{"linux":{` + cgroup + `},"hooks":{"prestart":[{"path":"/x"}]}}`},
		"another":          {runtime: "other", config: `{"linux":{` + cgroup + `}}`, asked: true},
		"a hook":           {runtime: "runc", config: `{"linux":{` + cgroup + `},"hooks":{"poststop":[{"path":"/x"}]}}`, asked: true},
		"a share of cache": {runtime: "runc", config: `{"linux":{` + cgroup + `,"intelRdt":{"closID":"x"}}}`, asked: true},
		"no cgroup":        {runtime: "runc", config: `{"linux":{}}`, asked: true},
		"a broken bundle":  {runtime: "runc", config: `{`, asked: true},
		"systemd":          {runtime: "runc", config: `{"linux":{"cgroupsPath":"none.slice:fairlead:none"}}`, systemd: true, asked: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			program := filepath.Join(dir, "program")
			if err := os.WriteFile(program, []byte("#!/bin/sh\ntouch "+dir+"/asked\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			d, err := New(Config{StateDir: dir, Monitor: &fakeMonitor{}, Systemd: tt.systemd})
			if err != nil {
				t.Fatal(err)
			}
			def := runtime.Definition{Name: "x", Handler: v1alpha1.Handler{Path: program}}
			h := d.Open(def, func() pod.HandlerInfo { return pod.HandlerInfo{Runtime: tt.runtime} })
			state := filepath.Join(d.root(def), "c1")
			for _, folder := range []string{filepath.Join(state, "x"), h.folder("c1")} {
				if err := os.MkdirAll(folder, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(h.folder("c1"), "config.json"), []byte(tt.config), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := h.Delete(t.Context(), "c1"); err != nil {
				t.Fatal(err)
			}
			if asked := exists(filepath.Join(dir, "asked")); asked != tt.asked {
				t.Errorf("asked: %t", asked)
			}
			if left := exists(state); left != tt.asked { // the program deletes nothing
				t.Errorf("the folder is left: %t", left)
			}
		})
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestTrialsAreSealed is the same for a trial: the runtime is killed in the middle
// of one whenever the daemon ends.
func TestTrialsAreSealed(t *testing.T) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("needs a static busybox (Debian package busybox-static)")
	}
	program := filepath.Join(t.TempDir(), "crun")
	if err := os.Symlink(busybox, program); err != nil {
		t.Fatal(err)
	}
	d, err := New(Config{StateDir: t.TempDir(), Monitor: &fakeMonitor{}})
	if err != nil {
		t.Fatal(err)
	}
	for _, runtime := range []string{"runc", "crun"} {
		var path string
		_ = d.cfg.from(runtime)(program, func(p string) error { path = p; return nil })
		if (path != program) != (runtime == "crun") {
			t.Errorf("%s on trial is executed as %s", runtime, path)
		}
	}
}
