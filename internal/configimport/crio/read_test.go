package crio

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.run/internal/configimport/tree"
)

func write(t testing.TB, files map[string]string) string {
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func read(t testing.TB, files map[string]string) string {
	p, _, err := Read(Sources{Paths: []string{write(t, files)}})
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.Files("/etc/fairlead", "")
	if err != nil {
		t.Fatal(err)
	}
	return string(out[0].Data)
}

func TestOrderOfFiles(t *testing.T) {
	text := read(t, map[string]string{
		"10-a.conf":   "[crio.runtime]\nlog_level = 'debug'\n[crio.network]\nplugin_dirs = ['/a', '/b']\n",
		"2-b.conf":    "[crio.runtime]\nlog_level = 'error'\n[crio.network]\nplugin_dirs = ['/c']\n",
		"1/z.conf":    "[crio.runtime]\nlog_level = 'info'\n[crio.network]\nnetwork_dir = '/n'\n",
		"3-empty":     "",
		"4-zero.conf": "[crio.runtime]\ncgroup_manager = ''\n",
	})
	for _, want := range []string{`level = "error"`, `bin_dirs = ["/c"]`, `conf_dir = "/n"`, `driver = "systemd"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}

func TestHandlersAreReplacedAsAWhole(t *testing.T) {
	text := read(t, map[string]string{
		"1.conf": "[crio.runtime.runtimes.x]\nruntime_path = '/bin/x'\n[crio.runtime.runtimes.y]\nruntime_path = '/bin/y'\n",
		"2.conf": "[crio.runtime.runtimes.x]\nprivileged_without_host_devices = true\n",
	})
	if !strings.Contains(text, "[handlers.x]\nprivileged_without_host_devices = true\n") || !strings.Contains(text, "[handlers.y]\npath = \"/bin/y\"\n") {
		t.Errorf("got\n%s", text)
	}
}

func TestWhatIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"[crio.runtime]\ndefault_runtime = 1\n":                    "a.conf:2: crio.runtime.default_runtime: this is no string",
		"[crio.network]\nplugin_dirs = '/a'\n":                     "a.conf:2: crio.network.plugin_dirs: this is no list",
		"[crio.runtime.runtimes]\nx = 1\n":                         "a.conf:2: crio.runtime.runtimes.x: this is no table",
		"[crio.image]\npull_progress_timeout = 'soon'\n":           "is no duration",
		"[crio.runtime.runtimes.x]\n[crio.runtime.runtimes.x]\n":   "a.conf:2:",
		"[crio.runtime.runtimes.x]\ninherit_default_runtime = 1\n": "this is no true or false",
	} {
		_, _, err := Read(Sources{Paths: []string{write(t, map[string]string{"a.conf": text})}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, _, err := Read(Sources{Paths: []string{"/nonexistent/crio.conf"}}); err == nil {
		t.Error("a file that is named and missing was accepted")
	}
}

func TestLimits(t *testing.T) {
	for text, want := range map[string]string{
		"nofile=1:2": "1 2 true", "NOFILE=3": "3 3 true", "core=-1": "unlimited unlimited true", "nofile": " false",
		"=1": " false", "nofile=": " false", "nofile=x:1": " false", "nofile=unlimited:1": "unlimited 1 true",
	} {
		_, limit, ok := ulimit(text)
		got := limit.Soft.String() + " " + limit.Hard.String() + " true"
		if !ok {
			got = " false"
		}
		if got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, sample := range []string{"crio.conf", "crio.conf.d/20-gvisor.conf", "registries.conf"} {
		text, err := os.ReadFile(filepath.Join("../testdata/crio", sample))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, text)
	}
	f.Fuzz(func(t *testing.T, conf, registries []byte) {
		top, err := tree.Parse("crio.conf", conf)
		if err != nil {
			return
		}
		mirrors, err := tree.Parse("registries.conf", registries)
		if err != nil {
			return
		}
		p, err := convert(top, mirrors)
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
