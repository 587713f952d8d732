package containerd

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/fault"
)

const (
	shipped = "/usr/share/containerd/config.toml"
	main    = "/etc/containerd/config.toml"
	starter = "/etc/systemd/system/containerd.service.d/50-fairlead.conf"
)

// node is a host whose containerd reads a file that nobody can write.
func node(t *testing.T, files map[string]string) Layout {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		put(t, root, Change{path, []byte(text)})
	}
	start, err := Starter([]string{"/usr/bin/containerd", "--config", main})
	if err != nil {
		t.Fatal(err)
	}
	return Layout{Root: root, Main: main, Origin: shipped, Starter: starter, Start: start}
}

func put(t *testing.T, root string, c Change) {
	t.Helper()
	at := filepath.Join(root, c.Path)
	err := os.MkdirAll(filepath.Dir(at), 0o755)
	if err == nil && c.Data == nil {
		err = os.Remove(at)
	} else if err == nil {
		err = os.WriteFile(at, c.Data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// plan makes the changes of a plan, and says to which files.
func plan(t *testing.T, l Layout, d Daemon, w Want) (paths []string) {
	t.Helper()
	c, err := Load(l)
	if err != nil {
		t.Fatal(err)
	}
	changes, err := c.Plan(d, w)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range changes {
		put(t, l.Root, x)
		paths = append(paths, x.Path)
	}
	return paths
}

func content(t *testing.T, l Layout, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(l.Root, path))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(data)
}

func one(name string) Want {
	return Want{Type: name, Handlers: []Handler{{Name: name, ContainerdHandler: payload.ContainerdHandler{RuntimeType: "io.containerd." + name + ".v1", RuntimePath: "/var/bin/" + name}}}}
}

func TestOrigin(t *testing.T) {
	const origin = "version = 2\n# what the system ships\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n  runtime_type = \"io.containerd.runc.v2\"\n"
	for name, d := range map[string]Daemon{"2.4": {Major: 2, Minor: 4}, "1.7": {Major: 1, Minor: 7}} {
		t.Run(name, func(t *testing.T) {
			l := node(t, map[string]string{shipped: origin})
			plan(t, l, d, one("a"))
			made := content(t, l, main)
			if !strings.Contains(made, "\n# what the system ships\n") || !strings.Contains(made, shipped) || !strings.Contains(content(t, l, starter), "ExecStart=\nExecStart=/usr/bin/containerd --config "+main+"\n") {
				t.Errorf("%s\n%s", made, content(t, l, starter))
			}
			// Killed before the restart, it plans the same again; after that, too.
			if again := plan(t, l, d, one("a")); len(again) > 0 {
				t.Errorf("a second plan changes %q", again)
			}
			running := l
			running.Origin = ""
			if again := plan(t, running, d, one("a")); len(again) > 0 {
				t.Errorf("a plan after the restart changes %q", again)
			}
			put(t, l.Root, Change{starter, nil})
			if again := plan(t, running, d, one("a")); len(again) != 1 || again[0] != starter {
				t.Errorf("what somebody took away: %q", again)
			}
			plan(t, running, d, one("b"))
			plan(t, running, d, Want{Type: "a", Owned: []string{"a"}})
			if content(t, l, main) == "" || content(t, l, starter) == "" {
				t.Error("another type lost the file")
			}
			plan(t, running, d, Want{Type: "b", Owned: []string{"b"}})
			if content(t, l, main) != "" || content(t, l, starter) != "" || content(t, l, shipped) != origin {
				t.Errorf("left is %q %q", content(t, l, main), content(t, l, starter))
			}
		})
	}
}

// Whoever is killed between two files of a removal leaves a containerd that starts, and the
// rest is taken away by the next one, whichever file containerd runs with by then.
func TestRemovalOfAnOriginInSteps(t *testing.T) {
	for name, started := range map[string]func(l *Layout){"not restarted": func(l *Layout) { l.Origin = "" }, "restarted": func(*Layout) {}} {
		t.Run(name, func(t *testing.T) {
			d, gone := Daemon{Major: 2, Minor: 4}, Want{Type: "a", Owned: []string{"a"}}
			l := node(t, map[string]string{shipped: "version = 3\n"})
			plan(t, l, d, one("a"))
			running := l
			running.Origin = ""
			c, err := Load(running)
			if err != nil {
				t.Fatal(err)
			}
			steps, err := c.Plan(d, gone)
			if err != nil || len(steps) < 2 || steps[0].Path != starter || steps[0].Data != nil {
				t.Fatalf("the first step is not %s: %+v %v", starter, steps, err)
			}
			put(t, l.Root, steps[0])
			started(&l)
			plan(t, l, d, gone)
			if content(t, l, main) != "" || content(t, l, starter) != "" || content(t, l, shipped) != "version = 3\n" {
				t.Errorf("left is %q %q", content(t, l, main), content(t, l, starter))
			}
		})
	}
}

// What an admin has added since stays, and so does what has it read.
func TestOriginThatWasEdited(t *testing.T) {
	l := node(t, map[string]string{shipped: "version = 3\n"})
	d := Daemon{Major: 2, Minor: 4}
	plan(t, l, d, one("a"))
	put(t, l.Root, Change{main, []byte(content(t, l, main) + "[debug]\nlevel = \"debug\"\n")})
	l.Origin = ""
	plan(t, l, d, Want{Type: "a", Owned: []string{"a"}})
	if got := content(t, l, main); !strings.Contains(got, "[debug]") || strings.Contains(got, "fairlead-*") || content(t, l, starter) == "" {
		t.Errorf("left is %q %q", got, content(t, l, starter))
	}
}

func TestOriginRefused(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"a file that nobody reads": {map[string]string{shipped: "version = 3\n", main: "version = 3\n"}, "nobody reads " + main},
		"a relative import":        {map[string]string{shipped: "version = 3\nimports = [\"conf.d/*.toml\"]\n"}, "another file in /etc/containerd"},
		"a drop-in of another":     {map[string]string{shipped: "version = 3\n", starter: "[Service]\n"}, "is somebody else's"},
		"a broken one":             {map[string]string{shipped: "version = \n"}, shipped},
	} {
		conf, err := Load(node(t, c.files))
		if err == nil {
			_, err = conf.Plan(Daemon{Major: 2, Minor: 4}, one("a"))
		}
		if fault.Of(err) != payload.UnsupportedNode && fault.Of(err) != payload.Conflict || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	l := node(t, map[string]string{shipped: "version = 3\n"})
	l.Start = nil
	conf, err := Load(l)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conf.Plan(Daemon{Major: 2, Minor: 4}, one("a")); err == nil || !strings.Contains(err.Error(), "cannot be seen how containerd is started") {
		t.Error(err)
	}
}

func TestStarter(t *testing.T) {
	got, err := Starter([]string{"/usr/bin/containerd", "--config", "/a b", "50%", "$X", `"`, ""})
	if want := `ExecStart=/usr/bin/containerd --config "/a b" 50%% $$X "\"" ""` + "\n"; err != nil || !strings.HasSuffix(string(got), "\nExecStart=\n"+want) {
		t.Errorf("%v %s", err, got)
	}
	if _, err := Starter([]string{"/x", "a\nExecStartPre=/evil"}); err == nil {
		t.Error("a line was written")
	}
}
