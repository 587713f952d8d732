package containerd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.run/internal/configimport/plan"
	"fairlead.run/internal/configimport/tree"
)

// write makes files in a folder and returns it.
func write(t testing.TB, files map[string]string) string {
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "DIR", dir)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// read is the configuration that comes of files, of which the first is a.toml,
// and the report.
func read(t testing.TB, files map[string]string) (string, []plan.Finding) {
	p, _, err := Read(filepath.Join(write(t, files), "a.toml"))
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.Files("/etc/fairlead", "")
	if err != nil {
		t.Fatal(err)
	}
	return string(out[0].Data), p.Report()
}

func TestImports(t *testing.T) {
	dir := write(t, map[string]string{
		"a.toml":     "version = 3\nimports = ['b.toml', 'c/*.toml']\n",
		"b.toml":     "version = 3\nimports = ['DIR/a.toml', './d.toml', 'b.toml']\n",
		"c/2.toml":   "version = 2\n",
		"c/1.toml":   "imports = ['1.toml']\n",
		"c/x.conf":   "no TOML",
		"d.toml":     "version = 3\n",
		"never.toml": "no TOML",
	})
	_, files, err := Read(filepath.Join(dir, "a.toml"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		name, _ := filepath.Rel(dir, f)
		names = append(names, name)
	}
	if got, want := strings.Join(names, " "), "a.toml b.toml c/1.toml c/2.toml d.toml"; got != want {
		t.Errorf("the files are %s, want %s", got, want)
	}
}

func TestFilesThatAreRefused(t *testing.T) {
	many := map[string]string{"a.toml": "imports = ['m/*.toml']\n"}
	for i := range maxFiles {
		many[fmt.Sprintf("m/%d.toml", i)] = ""
	}
	large := map[string]string{"a.toml": "imports = ['l/*.toml']\n"}
	for i := range 9 {
		large[fmt.Sprintf("l/%d.toml", i)] = "#" + strings.Repeat("x", 1<<20-2)
	}
	const rt = `[plugins."io.containerd.cri.v1.runtime".containerd`
	tests := map[string]struct {
		files map[string]string
		want  []string
	}{
		"a missing import": {map[string]string{"a.toml": "imports = ['gone.toml']"}, []string{"gone.toml", "no such file"}},
		"a newer version":  {map[string]string{"a.toml": "\nversion = 5"}, []string{"a.toml:2: version:", "5 is not known"}},
		"a bad pattern":    {map[string]string{"a.toml": "imports = ['[*']"}, []string{"a.toml:1: imports:", "pattern"}},
		"no TOML":          {map[string]string{"a.toml": "imports = ['b']", "b": "x\n"}, []string{"b:1:"}},
		"a key twice":      {map[string]string{"a.toml": "x = 1\nx = 2\n"}, []string{"a.toml:2:", "x"}},
		"a handler twice":  {map[string]string{"a.toml": rt + ".runtimes.a]\n" + rt + ".runtimes.a]\n"}, []string{"a.toml:2:"}},
		"a wrong type":     {map[string]string{"a.toml": "version = 3\n" + rt + "]\ndefault_runtime_name = 1"}, []string{"a.toml:3:", "default_runtime_name: this is no string"}},
		"no table":         {map[string]string{"a.toml": "version = 3\n" + rt + "]\nruntimes = 1"}, []string{"a.toml:3:", "runtimes: this is no table"}},
		"too many files":   {many, []string{"more than 256 files"}},
		"too much text":    {large, []string{"more than 8388608 bytes"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, err := Read(filepath.Join(write(t, test.files), "a.toml"))
			if err == nil {
				t.Fatal("was accepted")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q lacks %q", err, want)
				}
			}
		})
	}
}

// TestLaterFiles has each of the rules by which containerd merges.
func TestLaterFiles(t *testing.T) {
	text, _ := read(t, map[string]string{
		"a.toml": `version = 3
imports = ["b.toml"]
disabled_plugins = ["io.containerd.nri.v1.nri"]
[debug]
level = "debug"
[plugins."io.containerd.cri.v1.runtime"]
max_container_log_line_size = 4096
cdi_spec_dirs = ["/a"]
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.x]
runtime_type = "io.containerd.runc.v2"
privileged_without_host_devices = true
options = { BinaryName = "/bin/a" }
`,
		"b.toml": `version = 2
disabled_plugins = ["io.containerd.example.v1.x"]
[debug]
level = ""
[plugins."io.containerd.grpc.v1.cri"]
cdi_spec_dirs = ["/b"]
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/cni"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.x]
privileged_without_host_devices = false
options = { SystemdCgroup = true }
`,
	})
	for _, want := range []string{
		`level = "debug"`, "max_log_line = 4096", `cdi_spec_dirs = ["/b"]`, `bin_dirs = ["/cni"]`,
		"disable = true", "[handlers.x]\npath = \"/bin/a\"\n", // and not privileged_without_host_devices
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if strings.Contains(text, "privileged") {
		t.Errorf("a truth that a later file takes back stays:\n%s", text)
	}
}

func TestGVisor(t *testing.T) {
	text, report := read(t, map[string]string{
		"a.toml": `version = 3
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.gvisor]
runtime_type = "io.containerd.runsc.v1"
options = { TypeUrl = "io.containerd.runsc.v1.options", ConfigPath = "DIR/runsc.toml" }
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.gone]
runtime_type = "io.containerd.runsc.v1"
options = { ConfigPath = "DIR/gone.toml" }
`,
		"runsc.toml": "binary_name = '/opt/runsc'\nlog_level = 'debug'\n[runsc_config]\nplatform = 'kvm'\nnetwork = 'sandbox'\nstrace = true\noverlay2 = 'root:self'\n",
	})
	if want := "[handlers.gvisor]\npath = \"/opt/runsc\"\nargs = [\"--platform=kvm\", \"--strace=true\"]\n"; !strings.Contains(text, want) {
		t.Errorf("%q is missing in\n%s", want, text)
	}
	var all strings.Builder
	for _, f := range report {
		fmt.Fprintf(&all, "%s:%d %s %s\n", filepath.Base(f.File), f.Line, f.Key, f.Why)
	}
	for _, want := range []string{"runsc.toml:2 log_level", "runsc.toml:7 runsc_config.overlay2 Fairlead sets", "a.toml:7", "gone.toml"} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("%q is missing in\n%s", want, all.String())
		}
	}
}

func TestShims(t *testing.T) {
	text, report := read(t, map[string]string{"a.toml": `version = 3
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.wasm]
runtime_type = "io.containerd.wasmtime.v1"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.wasm.options]
TypeUrl = "example.v1.options"
Deep = { "a b" = [1, "x\ty"], c = true }
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.odd]
runtime_type = "odd"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.relative]
runtime_type = "io.containerd.kata.v2"
options = { ConfigPath = "kata.toml" }
`})
	for _, want := range []string{
		"[handlers.wasm]\ntype = \"shim\"\nruntime_type = \"io.containerd.wasmtime.v1\"\noptions = { Deep = { \"a b\" = [1, ", "TypeUrl = \"example.v1.options\" }",
		"[handlers.relative]\ntype = \"shim\"\nruntime_type = \"io.containerd.kata.v2\"\n\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if len(report) != 2 || report[0].Line != 7 || !strings.Contains(report[0].Why, "no name of a shim") ||
		report[1].Line != 11 || !strings.Contains(report[1].Why, "not an absolute path") {
		t.Errorf("the report is %+v", report)
	}
}

// TestDefaultsAreNotWorthALine reads what a containerd says that its defaults
// are, if one is installed.
func TestDefaultsAreNotWorthALine(t *testing.T) {
	program, err := exec.LookPath("containerd")
	if err != nil {
		t.Skip("containerd is not installed")
	}
	dump, err := exec.Command(program, "config", "default").Output()
	if err != nil {
		t.Fatal(err)
	}
	// What it imports is of this machine.
	text, report := read(t, map[string]string{"a.toml": strings.Replace(string(dump), "/etc/containerd/conf.d/*.toml", "gone/*.toml", 1)})
	if !strings.Contains(text, "[handlers.runc]") || !strings.Contains(text, `default_handler = "runc"`) {
		t.Errorf("runc is missing in\n%s", text)
	}
	for _, f := range report {
		// containerd 1 has these off; they are on here, as in containerd 2.
		if !strings.Contains(f.Key, "enable_unprivileged_") {
			t.Errorf("%d %s: %s", f.Line, f.Key, f.Why)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, sample := range []string{"v2/config.toml", "v2/conf.d/20-mirrors.toml", "v3/config.toml", "v4/config.toml"} {
		text, err := os.ReadFile(filepath.Join("../testdata", sample))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := tree.Parse("a.toml", text)
		if err != nil || strings.Contains(string(text), "ConfigPath") { // which is another file
			return
		}
		l := nothing()
		if _, err := l.add("a.toml", file); err != nil {
			return
		}
		p, err := l.plan()
		if err != nil {
			return
		}
		out, err := p.Files("/etc/fairlead", "x")
		if err != nil {
			t.Errorf("what was made of it is refused: %v", err)
		}
		for _, f := range out {
			if _, err := tree.Parse(f.Path, f.Data); err != nil {
				t.Errorf("what was made of it is no TOML: %v", err)
			}
		}
	})
}
