package v1alpha1

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestShims(t *testing.T) {
	const runc = "type = \"shim\"\nruntime_type = \"io.containerd.runc.v2\"\n"
	for text, wrong := range map[string]string{
		runc: "",
		runc + "[handlers.x.options]\nBinaryName = \"crun\"\nNoPivotRoot = true\n":                                            "",
		"type = \"shim\"\nruntime_type = \"io.containerd.kata.v2\"\nconfig_path = \"/k.toml\"\nsnapshotter = \"overlayfs\"\n": "",
		"type = \"shim\"\nruntime_type = \"a.wasm.v1\"\n[handlers.x.options]\nany = 3\nTypeUrl = \"t\"\n":                     "",

		"type = \"shim\"\n":                                   "handlers.x.runtime_type",
		"type = \"shim\"\nruntime_type = \"runc\"":            "handlers.x.runtime_type",
		"type = \"vm\"\n":                                     "there are \"oci\" and \"shim\"",
		"runtime_type = \"io.containerd.runc.v2\"":            "handlers.x.runtime_type: is for shims",
		runc + "args = [\"--debug\"]":                         "handlers.x.args",
		runc + "root = \"/x\"":                                "handlers.x.root",
		runc + "snapshotter = \"devmapper\"":                  "handlers.x.snapshotter",
		runc + "config_path = \"/x\"":                         "handlers.x.config_path",
		runc + "[handlers.x.options]\nBinaryName = 3\n":       "handlers.x.options.BinaryName: 3 is no string",
		runc + "[handlers.x.options]\nBinary = \"x\"\n":       "handlers.x.options.Binary",
		runc + "[handlers.x.options]\nSystemdCgroup = true\n": "cgroup.driver",
		runc + "[handlers.x.options]\nRoot = \"here\"\n":      "handlers.x.options.Root",
		"type = \"shim\"\nruntime_type = \"a.wasm.v1\"\n[handlers.x.options]\nTypeUrl = 3\n":         "handlers.x.options.TypeUrl",
		"type = \"shim\"\nruntime_type = \"a.wasm.v1\"\n[handlers.x.options]\nConfigPath = \"/x\"\n": "config_path",
	} {
		file := filepath.Join(t.TempDir(), "config.toml")
		if err := os.WriteFile(file, []byte("[handlers.x]\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(file)
		if err == nil {
			err = c.Validate()
		}
		switch {
		case wrong == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)):
			t.Errorf("%s: the error %v lacks %q", text, err, wrong)
		case err != nil && strings.Contains(text, "options") && !strings.Contains(err.Error(), file+":"):
			t.Errorf("%s: the error %v lacks the file", text, err)
		}
	}
}

func TestShimProgram(t *testing.T) {
	for in, want := range map[string]string{
		"io.containerd.runc.v2": "containerd-shim-runc-v2", "io.containerd.runsc.v1": "containerd-shim-runsc-v1",
		"runc.v2": "", "io.containerd.runc": "", "../x.y.v1": "", "": "",
	} {
		if got := ShimProgram(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}
