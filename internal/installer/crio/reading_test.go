package crio

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// files makes a configuration of files; one whose text begins with -> is a link.
func files(t *testing.T, all map[string]string) *Config {
	t.Helper()
	root := t.TempDir()
	for name, text := range all {
		path := filepath.Join(root, "etc/crio", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		err := os.WriteFile(path, []byte(text), 0o644)
		if to, ok := strings.CutPrefix(text, "->"); ok {
			err = os.Remove(path)
			if err == nil {
				err = os.Symlink(to, path)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c, err := Load(Layout{Root: root, Main: "/etc/crio/crio.conf", DropIns: "/etc/crio/crio.conf.d"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func handler(name, keys string) string { return "[crio.runtime.runtimes." + name + "]\n" + keys + "\n" }

// CRI-O reads what is in folders below its own, too, and no link to a folder.
func TestLoadReadsAsCRIODoes(t *testing.T) {
	c := files(t, map[string]string{
		"crio.conf":                 handler("main", ""),
		"crio.conf.d/10-a.conf":     handler("a", ""),
		"crio.conf.d/20/b.conf":     handler("b", ""),
		"crio.conf.d/20/.b.conf.sw": handler("half", ""),
		"crio.conf.d/30-none":       "->/nothing",
		"crio.conf.d/40-folder":     "->20",
		"crio.conf.d/50-c.conf":     "->/etc/crio/elsewhere",
		"elsewhere":                 handler("c", ""),
	})
	got := c.Handlers()
	for _, want := range []string{"main", "a", "b", "half", "c"} {
		if got[want] == "" {
			t.Errorf("handler %s is not seen: %v", want, got)
		}
	}
	if got["b"] != "/etc/crio/crio.conf.d/20/b.conf" {
		t.Errorf("b is in %s", got["b"])
	}
	if len(c.Broken) != 2 || !strings.HasPrefix(c.Broken[0], "/etc/crio/crio.conf.d/30-none: ") || !strings.HasPrefix(c.Broken[1], "/etc/crio/crio.conf.d/40-folder: ") {
		t.Errorf("broken: %q", c.Broken)
	}
	if want := []string{"/etc/crio/crio.conf.d/20/.b.conf.sw", "/etc/crio/crio.conf.d/30-none", "/etc/crio/crio.conf.d/40-folder"}; !slices.Equal(c.Temporary, want) {
		t.Errorf("temporary: %q", c.Temporary)
	}
	if len(files(t, nil).Handlers()) != 0 {
		t.Error("there are handlers without files")
	}
}

// A handler that is described again is another one.
func TestTheLastDescriptionCounts(t *testing.T) {
	c := files(t, map[string]string{
		"crio.conf":             handler("a", `runtime_path = "/1"`) + handler("b", `runtime_path = "/1"`),
		"crio.conf.d/10-x.conf": handler("a", `runtime_path = "/2"`) + handler("b", `runtime_type = "oci"`),
	})
	if got := c.Program("a"); got != "/2" {
		t.Errorf("a runs %q", got)
	}
	if got := c.Program("b"); got != "" {
		t.Errorf("b runs %q", got)
	}
}

func TestUnmonitored(t *testing.T) {
	const monitor = `monitor_path = "/usr/bin/conmon"`
	c := files(t, map[string]string{
		"crio.conf": "[crio.runtime]\nconmon = \"/usr/bin/conmon\"\n" + handler("plain", "") + handler("watched", monitor) +
			handler("again", monitor) + handler("vm", `runtime_type = "vm"`) + handler("oci", `runtime_type = "oci"`),
		"crio.conf.d/10-x.conf": handler("again", `runtime_path = "/x"`),
	})
	got := c.Unmonitored([]string{"", "again", "crun", "oci", "plain", "vm", "watched"})
	if want := []string{"again", "crun", "oci", "plain"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
