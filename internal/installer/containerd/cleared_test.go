package containerd

import (
	"slices"
	"testing"

	"fairlead.run/internal/installer/cri"
)

// Files of our own that containerd 2 has had go where 1.x has come back, which would read
// nothing else beside them.
func TestOwnFilesBelowAnOldRelease(t *testing.T) {
	const text = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n  runtime_type = \"io.containerd.runc.v2\"\n"
	l := Layout{Root: t.TempDir(), Main: main}
	put(t, l.Root, Change{main, []byte(text)})
	newer, older := Daemon{Major: 2, Minor: 4}, Daemon{Major: 1, Minor: 7, Loaded: map[string]cri.Loaded{"runc": {Type: "io.containerd.runc.v2"}}}
	plan(t, l, newer, one("a"))
	plan(t, l, newer, one("b"))
	with := one("a")
	with.Owned = []string{"a"}
	if got := plan(t, l, older, with); !slices.Equal(got, []string{"/etc/containerd/conf.d/fairlead-a.toml", main}) {
		t.Errorf("it changes %q", got)
	}
	if got := plan(t, l, older, with); len(got) > 0 {
		t.Errorf("a second plan changes %q", got)
	}
	plan(t, l, older, Want{Type: "b", Owned: []string{"b"}})
	plan(t, l, older, Want{Type: "a", Owned: []string{"a"}})
	if got := content(t, l, main); got != text {
		t.Errorf("it leaves\n%s", got)
	}
}

// Somebody adds to a handler of ours in a file of their own, or has one of its name: that is
// theirs. A table that runs what is in our folder is ours.
func TestTablesOfOthersStay(t *testing.T) {
	const head = "version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n"
	const table = "[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes."
	const added = "version = 3\n" + table + "a.options]\n  SystemdCgroup = true\n"
	l := Layout{Root: t.TempDir(), Main: main}
	put(t, l.Root, Change{main, []byte(head + table + "a]\n  runtime_type = \"/opt/a/1/shim\"\n")})
	put(t, l.Root, Change{"/etc/containerd/conf.d/admin.toml", []byte(added)})
	d := Daemon{Major: 2, Minor: 4}
	plan(t, l, d, Want{Type: "a", Owned: []string{"a"}, Base: "/opt/a"})
	if got := content(t, l, main); got != head {
		t.Errorf("it leaves\n%s", got)
	}
	if got := content(t, l, "/etc/containerd/conf.d/admin.toml"); got != added {
		t.Errorf("it leaves\n%s", got)
	}
	put(t, l.Root, Change{main, []byte(head + table + "a]\n  runtime_type = \"/opt/ab/shim\"\n")})
	if got := plan(t, l, d, Want{Type: "a", Owned: []string{"a"}, Base: "/opt/a"}); len(got) > 0 {
		t.Errorf("%q are changed", got)
	}
}

// k3s and rke2 make their file of another template once they have containerd 2.
func TestTemplatesOfBefore(t *testing.T) {
	const dir, seed = "/etc/", "{{ template \"base\" . }}\n"
	old := Layout{Root: t.TempDir(), Main: dir + "config.toml", Generated: true, Seed: seed, Template: dir + "config.toml.tmpl"}
	now := old
	now.Template = dir + "config-v3.toml.tmpl"
	written := []string{old.Template, now.Template}
	folder := old
	folder.Template = ""
	put(t, old.Root, Change{old.Main, []byte("version = 2\n")})
	plan(t, old, Daemon{Major: 1, Minor: 7}, one("a"))
	d := Daemon{Major: 2, Minor: 4}
	put(t, old.Root, Change{old.Main, []byte("version = 3\n")})
	again := one("a")
	again.Owned, again.Written = []string{"a"}, written
	plan(t, now, d, again)
	if got := plan(t, now, d, again); len(got) > 0 {
		t.Errorf("a second plan changes %q", got)
	}
	if content(t, now, old.Template) != "" || content(t, now, now.Template) == "" {
		t.Errorf("the templates are\n%s\nand\n%s", content(t, now, old.Template), content(t, now, now.Template))
	}
	put(t, old.Root, Change{old.Main, []byte("version = 3\nimports = [\"/etc/config-v3.toml.d/*.toml\"]\n")})
	plan(t, folder, d, again)
	if content(t, now, now.Template) != "" || content(t, now, "/etc/config-v3.toml.d/fairlead-a.toml") == "" {
		t.Error("the handler is still in the template, or not in the folder")
	}
	plan(t, folder, d, Want{Type: "a", Owned: []string{"a"}, Written: written})
	if content(t, now, "/etc/config-v3.toml.d/fairlead-a.toml") != "" {
		t.Error("the file is left")
	}
}

// containerd is started with another file. In the one before, and beside it, nothing is left;
// one that nothing was written to is not looked at.
func TestFilesOfBefore(t *testing.T) {
	const text, elsewhere = "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.runc]\n  runtime_type = \"a\"\n", "/opt/config.toml"
	d := Daemon{Major: 2, Minor: 4}
	before, now := Layout{Root: t.TempDir(), Main: main}, Layout{Main: elsewhere}
	now.Root = before.Root
	for _, path := range []string{main, elsewhere} {
		put(t, now.Root, Change{path, []byte(text)})
	}
	written := plan(t, before, d, one("a"))
	again := one("a")
	again.Owned = []string{"a"}
	plan(t, now, d, again) // of another containerd
	if got := content(t, now, main); got == text {
		t.Error("what another journal knows of is taken out")
	}
	again.Written = written
	plan(t, now, d, again)
	if got := content(t, now, main); got != text || content(t, now, "/etc/containerd/conf.d/fairlead-a.toml") != "" {
		t.Errorf("it is\n%s", got)
	}
	plan(t, now, d, Want{Type: "a", Owned: []string{"a"}, Written: written})
	if got := content(t, now, elsewhere); got != text {
		t.Errorf("it is\n%s", got)
	}
}
