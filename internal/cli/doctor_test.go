package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"fairlead.run/internal/installer/cri/critest"
	"fairlead.run/internal/installer/doctor"
)

// Scripts go by the exit code: warnings do not count.
func TestDoctorExitCode(t *testing.T) {
	root, stop := (&critest.Runtime{Name: "containerd", Release: "2.1.0"}).Serve(t, "run/containerd/containerd.sock")
	for _, dir := range []string{"sys/fs/cgroup", "etc/containerd", "usr/bin"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"sys/fs/cgroup/cgroup.controllers": "", "etc/containerd/config.toml": "version = 3\n"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range []string{"containerd-shim-runc-v2", "runc"} { // of the handler that containerd has by itself
		if err := os.WriteFile(filepath.Join(root, "usr/bin", program), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	examine := func(want int) map[doctor.Level][]doctor.Finding {
		t.Helper()
		var out bytes.Buffer
		a := &app{out: &out, err: io.Discard}
		if code := a.run(t.Context(), []string{"node", "doctor", "--host", root, "--distribution", "containerd", "-o", "json"}); code != want {
			t.Errorf("the exit code is %d, want %d:\n%s", code, want, out.String())
		}
		var all []doctor.Finding
		if err := json.Unmarshal(out.Bytes(), &all); err != nil {
			t.Fatalf("%v in %s", err, out.String())
		}
		by := map[doctor.Level][]doctor.Finding{}
		for _, f := range all {
			by[f.Level] = append(by[f.Level], f)
		}
		return by
	}
	// There is no /dev/kvm, which is a warning.
	if all := examine(0); len(all[doctor.OK]) == 0 || len(all[doctor.Warning]) == 0 || len(all[doctor.Error]) > 0 {
		t.Errorf("%+v", all)
	}
	stop()
	if all := examine(exitFailure); len(all[doctor.Error]) != 1 || all[doctor.Error][0].Code != "socket" || all[doctor.Error][0].Fix == "" {
		t.Errorf("%+v", all)
	}
}
