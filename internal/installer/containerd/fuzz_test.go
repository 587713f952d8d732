package containerd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.run/internal/installer/cri"
)

// A handler comes and goes in whatever somebody has as containerd's configuration, of
// every version of its format: all bytes of others are there meanwhile, and exactly
// those are left.
func FuzzPlan(f *testing.F) {
	for _, none := range []string{"version = 5\n", "version = -1\n", "version = \"2\"\n"} {
		f.Add(none, true)
		f.Add(none, false)
	}
	for _, version := range []string{"", "version = 1\n", "version = 2\n", "version = 3\n", "version = 4\n"} {
		for _, rest := range []string{
			"", "# end", "imports = [\"/etc/containerd/conf.d/*.toml\"]\r\n", "imports = ['/x']\n", "imports = ['c*']\n", "[imports]\n", "disabled_plugins = [\"cri\"]\n",
			"[plugins.cri.containerd.runtimes.runc]\ntype = 1\n", "[plugins.cri]\ncontainerd = {}\n", "plugins = {}",
			"[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc] # mine\n  runtime_type = \"a\"\n\n# tail",
			"[plugins.'io.containerd.grpc.v1.cri']\ncontainerd.runtimes.runc.runtime_type = 'a'\n", "[[plugins]]\n",
			"[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes]\nrunc = {runtime_type = \"a\"}\n",
			"[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.a]\n", "[\"plugins\".\"io.containerd.cri.v1.runtime\"]",
		} {
			f.Add(version+rest, true)
			f.Add(version+rest, false)
		}
	}
	f.Fuzz(func(t *testing.T, text string, old bool) {
		if strings.Contains(text, "fairlead") {
			return // what is ours already
		}
		d := Daemon{Major: 2, Minor: 4, Loaded: map[string]cri.Loaded{"runc": {Type: "io.containerd.runc.v2"}}}
		if old {
			d.Major, d.Minor = 1, 7
		}
		l := Layout{Root: t.TempDir(), Main: main}
		put(t, l.Root, Change{main, []byte(text)})
		if !tryPlan(t, l, d, one("a")) {
			return // it is refused, with nothing done
		}
		if with := content(t, l, main); !has(with, text) {
			t.Fatalf("with a handler it is\n%s\nand was\n%s", with, text)
		}
		c, err := Load(l)
		if err != nil {
			t.Fatalf("with a handler it cannot be read: %v\n%s", err, content(t, l, main))
		}
		if h := c.Handlers(d.Major)["a"]; h.Type == "" {
			t.Fatalf("the handler is not in\n%s", content(t, l, main))
		}
		if again := plan(t, l, d, one("a")); len(again) > 0 {
			t.Fatalf("a second plan changes %q", again)
		}
		plan(t, l, d, Want{Type: "a", Owned: []string{"a"}})
		if left := content(t, l, main); left != text {
			t.Fatalf("it leaves\n%q\nof\n%q", left, text)
		}
		if left, _ := filepath.Glob(filepath.Join(l.Root, filepath.Dir(main), "*", "*")); len(left) > 0 {
			t.Fatalf("%q are left", left)
		}
	})
}

// has says whether a text is in another one whole, or in two parts around one thing.
func has(with, text string) bool {
	n := 0
	for n < len(text) && n < len(with) && text[n] == with[n] {
		n++
	}
	return strings.HasSuffix(with, text[n:])
}

// tryPlan makes the changes of a plan, unless that is refused.
func tryPlan(t *testing.T, l Layout, d Daemon, w Want) bool {
	t.Helper()
	c, err := Load(l)
	if err != nil {
		return false
	}
	c.Pending(d)
	c.Ignored()
	changes, err := c.Plan(d, w)
	if err != nil {
		return false
	}
	for _, x := range changes {
		put(t, l.Root, x)
	}
	if _, err := os.Stat(filepath.Join(l.Root, main)); err != nil {
		t.Fatalf("the file is gone: %v", err)
	}
	return true
}
