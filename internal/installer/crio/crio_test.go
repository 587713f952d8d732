package crio

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/fault"
	"fairlead.run/internal/installer/tomledit"
)

const (
	main = "/etc/crio/crio.conf"
	dir  = "/etc/crio/crio.conf.d"
	own  = dir + "/99-fairlead-kata.conf"
)

// node is a host with files.
func node(t *testing.T, files map[string]string) Layout {
	t.Helper()
	l := Layout{Root: t.TempDir(), Main: main, DropIns: dir}
	for path, text := range files {
		at := filepath.Join(l.Root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func load(t *testing.T, l Layout) *Config {
	t.Helper()
	c, err := Load(l)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func table(name, path string) string {
	return "[crio.runtime.runtimes." + name + "]\nruntime_path = \"" + path + "\"\n"
}

func kata() []Handler {
	return []Handler{{Name: "kata", CRIOHandler: payload.CRIOHandler{
		RuntimePath: "/usr/bin/kata/1/shim", RuntimeType: "vm", RuntimeRoot: "/run/vc", RuntimeConfigPath: `/a "b"\c`,
		AllowedAnnotations: []string{"io.x/*", "y"}, PrivilegedWithoutHostDevices: true,
	}}, {Name: "kata.fc", CRIOHandler: payload.CRIOHandler{RuntimePath: "/fc"}}}
}

// The last file counts, in the order of names, and the folder's after the main one.
func TestLoad(t *testing.T) {
	c := load(t, node(t, map[string]string{
		main:             table("a", "/main") + table("b", "/main"),
		dir + "/01.conf": table("b", "/01") + table("c", "/01"), dir + "/02.conf": table("c", "/02"),
		dir + "/sub/03.conf": table("d", "/sub"),
	}))
	if got := c.Handlers(); !maps.Equal(got, map[string]string{"a": main, "b": dir + "/01.conf", "c": dir + "/02.conf", "d": dir + "/sub/03.conf"}) {
		t.Errorf("%v", got)
	}
	for name, want := range map[string]string{"a": "/main", "b": "/01", "c": "/02", "d": "/sub"} {
		if got := c.Program(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if len(c.Broken)+len(c.Temporary) > 0 {
		t.Errorf("%q %q", c.Broken, c.Temporary)
	}
	if got := c.Pending([]string{"a", "crun", "gone", "runc"}); !slices.Equal(got, []string{"gone", "runc"}) {
		t.Errorf("pending are %q", got)
	}
	if c := load(t, Layout{Root: t.TempDir(), Main: main, DropIns: dir}); len(c.Handlers())+len(c.Broken)+len(c.Temporary) > 0 {
		t.Errorf("of nothing there is %+v", c)
	}
	l := node(t, map[string]string{dir: "no folder"})
	if _, err := Load(l); err == nil {
		t.Error("a file was read as a folder")
	}
}

// What editors and others leave half written is read by CRI-O, too, and is told.
func TestTemporaryFiles(t *testing.T) {
	l := node(t, map[string]string{
		dir + "/.10-x.conf.swp": "\x00\x01 no TOML", dir + "/10-x.conf~": table("old", "/old"), dir + "/.hidden.conf": table("hidden", "/h"), dir + "/10-x.conf": table("x", "/x"), dir + "/y.toml": "",
	})
	c := load(t, l)
	if want := []string{dir + "/.10-x.conf.swp", dir + "/.hidden.conf", dir + "/10-x.conf~"}; !slices.Equal(c.Temporary, want) {
		t.Errorf("%q, want %q", c.Temporary, want)
	}
	if len(c.Broken) != 1 || !strings.HasPrefix(c.Broken[0], dir+"/.10-x.conf.swp:1:") {
		t.Errorf("%q", c.Broken)
	}
	if got := slices.Sorted(maps.Keys(c.Handlers())); !slices.Equal(got, []string{"hidden", "old", "x"}) {
		t.Errorf("%q", got)
	}
	// CRI-O would not start again: nothing is added, and what is ours can still go.
	if _, err := c.Plan("kata", kata()); fault.Of(err) != payload.UnsupportedNode || !strings.Contains(err.Error(), ".swp") {
		t.Errorf("%v", err)
	}
	if changes, err := c.Plan("kata", nil); err != nil || len(changes) > 0 {
		t.Errorf("%+v %v", changes, err)
	}
}

// A drop-in comes, is read as it was meant, stays as it is, is mended, and goes.
func TestPlan(t *testing.T) {
	l := node(t, map[string]string{main: table("runc", "/usr/bin/runc"), dir + "/keep.conf": "# mine\n"})
	at := filepath.Join(l.Root, own)
	plan := func(handlers []Handler) []Change {
		t.Helper()
		changes, err := load(t, l).Plan("kata", handlers)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			if c.Path != own {
				t.Fatalf("it changes %s", c.Path)
			}
			if c.Data == nil {
				err = os.Remove(at)
			} else {
				err = os.WriteFile(at, c.Data, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return changes
	}
	if got := plan(kata()); len(got) != 1 {
		t.Fatalf("%d changes", len(got))
	}
	text, err := os.ReadFile(at)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := tomledit.Parse(own, text)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{"runtime_path": "/usr/bin/kata/1/shim", "runtime_type": "vm", "runtime_root": "/run/vc", "runtime_config_path": `/a "b"\c`, "privileged_without_host_devices": true} {
		if got := doc.Get("crio", "runtime", "runtimes", "kata", key); got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	if list, _ := doc.Get("crio", "runtime", "runtimes", "kata", "allowed_annotations").([]any); !slices.Equal(list, []any{"io.x/*", "y"}) {
		t.Errorf("allowed annotations: %v", list)
	}
	if c := load(t, l); c.Program("kata.fc") != "/fc" || doc.Get("crio", "runtime", "runtimes", "kata.fc", "runtime_type") != nil {
		t.Errorf("%+v", c.Handlers())
	}
	if got := plan(kata()); len(got) > 0 {
		t.Errorf("a second time it changes %+v", got)
	}
	for _, damage := range []string{"", "[crio", string(text) + "# more\n", string(text[:len(text)/2])} {
		if err := os.WriteFile(at, []byte(damage), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := plan(kata()); len(got) != 1 || string(got[0].Data) != string(text) {
			t.Errorf("of %q it makes %+v", damage, got)
		}
	}
	if got := plan(kata()[1:]); len(got) != 1 || load(t, l).Program("kata") != "" {
		t.Errorf("without one of the handlers it makes %+v", got)
	}
	if err := os.WriteFile(at, []byte("[crio"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := plan(nil); len(got) != 1 || got[0].Data != nil {
		t.Errorf("it goes by %+v", got)
	}
	if got := plan(nil); len(got) > 0 {
		t.Errorf("it goes again by %+v", got)
	}
}

func TestPlanRefuses(t *testing.T) {
	l := node(t, map[string]string{main: "# head\n" + table("kata", "/mine")})
	if _, err := load(t, l).Plan("kata", kata()); fault.Of(err) != payload.Conflict || !strings.Contains(err.Error(), main+":2: handler kata") {
		t.Errorf("%v", err)
	}
}

// Links are followed as the node means them.
func TestLinksOfTheNode(t *testing.T) {
	l := node(t, map[string]string{"/opt/crio/main": table("a", "/a"), "/opt/crio/d/1.conf": table("b", "/b")})
	if err := os.MkdirAll(filepath.Join(l.Root, "etc/crio"), 0o755); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{main: "/opt/crio/main", dir: "/opt/crio/d"} {
		if err := os.Symlink(to, filepath.Join(l.Root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if got := slices.Sorted(maps.Keys(load(t, l).Handlers())); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%q", got)
	}
}

// Whatever is in the folder, nothing but our own file is changed, and what comes goes.
func FuzzPlan(f *testing.F) {
	for _, text := range []string{"", "[crio", table("kata", "/x"), "[crio.runtime]\nruntimes = {}\n", "crio = 1\n", "[[crio.runtime.runtimes]]\n", table("a", "/a")} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l := node(t, map[string]string{main: text, dir + "/50.conf": text})
		c := load(t, l)
		_ = c.Pending([]string{"a"})
		changes, err := c.Plan("kata", kata())
		if err != nil {
			return
		}
		if len(changes) != 1 || changes[0].Path != own {
			t.Fatalf("%+v", changes)
		}
		if err := os.WriteFile(filepath.Join(l.Root, own), changes[0].Data, 0o644); err != nil {
			t.Fatal(err)
		}
		c = load(t, l)
		if c.Program("kata") != "/usr/bin/kata/1/shim" {
			t.Fatalf("it is not served with %q", text)
		}
		if again, err := c.Plan("kata", kata()); err != nil || len(again) > 0 {
			t.Fatalf("a second time: %+v %v", again, err)
		}
		if gone, err := c.Plan("kata", nil); err != nil || len(gone) != 1 || gone[0].Path != own || gone[0].Data != nil {
			t.Fatalf("it goes by %+v: %v", gone, err)
		}
	})
}

// The handler of pods without a class stays.
func TestDefaultRuntimeStays(t *testing.T) {
	const dir = "/etc/crio/crio.conf.d"
	root := t.TempDir()
	l := Layout{Root: root, Main: "/etc/crio/crio.conf", DropIns: dir}
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(dir+"/99-fairlead-kata.conf", "[crio.runtime.runtimes.kata]\n[crio.runtime.runtimes.other]\n")
	for name, stays := range map[string]bool{"kata": true, "crun": false} {
		write(l.Main, "[crio.runtime]\ndefault_runtime = \""+name+"\"\n")
		if _, err := load(t, l).Plan("kata", nil); (err != nil) != stays || stays && !strings.Contains(err.Error(), "crio.conf:2: default_runtime is kata") {
			t.Errorf("%s is the default: %v", name, err)
		}
		if _, err := load(t, l).Plan("kata", []Handler{{Name: "kata"}}); err != nil {
			t.Errorf("%s is the default, and another one goes: %v", name, err)
		}
	}
}
