package oci

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"fairlead.run/internal/pod"
	"fairlead.run/internal/runtime/oci/trial"
)

// TestStartReplacesWhatACrashLeft fails if a container that the runtime knows,
// and nobody else, is in the way of its own start.
func TestStartReplacesWhatACrashLeft(t *testing.T) {
	for _, name := range []string{"runc", "crun"} {
		t.Run(name, func(t *testing.T) {
			m, state := newMonitor(t)
			d, err := New(Config{StateDir: state, Monitor: m, StandIn: monitorBinary})
			if err != nil {
				t.Fatal(err)
			}
			h, err := registry(t, d, name).Get(name)
			if err != nil {
				t.Skip(err)
			}
			id := string(pod.NewContainerID())
			bundle := sleeper(t, state, id, h.Info().OCI)
			// As if the monitor had died after the runtime's work.
			argv, err := h.tool.argv("", "run", "--detach", "--bundle", bundle, id)
			if err != nil {
				t.Fatal(err)
			}
			// Without pipes: the container would keep them open.
			if err := exec.Command(argv[0], argv[1:]...).Run(); err != nil {
				t.Fatal(err)
			}
			g, err := h.group(id)
			if err != nil {
				t.Fatal(err)
			}
			before, err := g.PIDs()
			if err != nil || len(before) != 1 {
				t.Fatalf("processes %v (%v)", before, err)
			}
			p, err := h.Start(t.Context(), pod.StartRequest{ID: id, Bundle: pod.Bundle{Path: bundle}})
			if err != nil {
				t.Fatal(err)
			}
			if now, err := g.PIDs(); err != nil || len(now) != 1 || now[0] == before[0] || now[0] != p.PID {
				t.Errorf("the container has the processes %v (%v), before %v, started %d", now, err, before, p.PID)
			}
			if err := h.Delete(t.Context(), id); err != nil {
				t.Error(err)
			}
			if _, err := m.Wait(t.Context(), id); err != nil {
				t.Error(err)
			}
			if err := m.Forget(t.Context(), id); err != nil {
				t.Error(err)
			}
		})
	}
}

// sleeper makes the bundle of a container that does nothing.
func sleeper(t *testing.T, state, id, version string) string {
	t.Helper()
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Skip("busybox-static is not installed")
	}
	bundle := filepath.Join(state, "containers", id)
	for _, dir := range []string{"bin", "proc", "dev"} {
		if err := os.MkdirAll(filepath.Join(bundle, "rootfs", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := trial.Spec(version, id, monitorBinary, "")
	s.Process.Args = []string{"/bin/busybox", "sleep", "1000"}
	s.Linux.CgroupsPath = "/fairlead-test/" + id
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"rootfs/bin/busybox": program, "config.json": data} {
		if err := os.WriteFile(filepath.Join(bundle, name), content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return bundle
}
