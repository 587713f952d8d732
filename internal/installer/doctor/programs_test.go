package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fairlead.run/internal/installer/cri"
	"fairlead.run/internal/installer/crio"
	"fairlead.run/internal/installer/profile"
)

// containerd serves a handler whose options name files that are not there.
func TestOptions(t *testing.T) {
	root := t.TempDir()
	write(t, root, "usr/bin/containerd-shim-runc-v2", "", 0o755)
	write(t, root, "usr/bin/containerd-shim-kata-v2", "", 0o755)
	write(t, root, "usr/bin/runc", "", 0o755)
	write(t, root, "opt/good", "", 0o755)
	write(t, root, "opt/good.toml", "", 0o644)
	// A link is followed as the node means it.
	if err := os.Symlink("/opt/good", filepath.Join(root, "usr/bin/linked")); err != nil {
		t.Fatal(err)
	}
	handlers := ""
	for name, c := range map[string][2]string{
		"good":     {"io.containerd.runc.v2", `BinaryName = "/opt/good"`},
		"linked":   {"io.containerd.runc.v2", `BinaryName = "/usr/bin/linked"`},
		"named":    {"io.containerd.runc.v2", `BinaryName = "linked"`},
		"empty":    {"io.containerd.runc.v2", `BinaryName = ""`},
		"unheeded": {"io.containerd.runc.v2", `ConfigPath = "/opt/none.toml"`},
		"kata":     {"io.containerd.kata.v2", `ConfigPath = "/opt/good.toml"`},
		"gone":     {"io.containerd.runc.v2", `BinaryName = "/opt/gone"`},
		"text":     {"io.containerd.runc.v2", `BinaryName = "/opt/good.toml"`},
		"nowhere":  {"io.containerd.runc.v2", `BinaryName = "nowhere"`},
		"bare":     {"io.containerd.kata.v2", `ConfigPath = "/opt/none.toml"`},
		"folder":   {"/opt/good", `ConfigPath = "/opt"`},
	} {
		handlers += "[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes." + name + "]\n  runtime_type = \"" + c[0] + "\"\n  [plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes." + name + ".options]\n    " + c[1] + "\n"
	}
	write(t, root, profile.ContainerdMain, "version = 3\n"+handlers, 0o644)
	all := Examine(t.Context(), Node{Root: root, proc: t.TempDir(), Choice: profile.Choice{Name: "containerd"}})
	check(
		t, all, wanted{Error, "binary", "gone", "BinaryName /opt/gone is not there"}, wanted{Error, "binary", "text", "BinaryName /opt/good.toml"},
		wanted{Error, "binary", "nowhere", "BinaryName nowhere is not on PATH"}, wanted{Error, "config", "bare", "/opt/none.toml"}, wanted{Error, "config", "folder", "/opt, is no file"},
	)
	for _, f := range all {
		for _, well := range []string{"good", "linked", "named", "empty", "unheeded", "kata"} {
			if f.Object == well {
				t.Errorf("%+v", f)
			}
		}
	}
}

// CRI-O leaves such a handler out.
func TestRuntimeConfigOfCRIO(t *testing.T) {
	root := t.TempDir()
	write(t, root, "opt/good.toml", "", 0o644)
	write(t, root, "usr/bin/good", "", 0o755)
	write(t, root, "etc/crio/crio.conf.d/10-x.conf", "[crio.runtime.runtimes.good]\nruntime_type = \"vm\"\nruntime_config_path = \"/opt/good.toml\"\n[crio.runtime.runtimes.bare]\nruntime_type = \"vm\"\nruntime_config_path = \"/opt/none.toml\"\n", 0o644)
	all := Examine(t.Context(), Node{Root: root, proc: t.TempDir(), Choice: profile.Choice{Name: "crio"}})
	check(t, all, wanted{Error, "config", "bare", "/opt/none.toml"})
	for _, f := range all {
		if f.Object == "good" {
			t.Errorf("%+v", f)
		}
	}
}

// k3s has the shim in a folder of its own, which is on the PATH of its containerd.
func TestProgramsAreLookedForWhereTheRuntimeDoes(t *testing.T) {
	const folder = "var/lib/rancher/k3s/agent/etc/containerd/"
	n := serve(t, containerdServing("runc", "other"), "run/k3s/containerd/containerd.sock", "/usr/bin/containerd")
	n.Choice.Name = "k3s"
	write(t, n.Root, folder+"config.toml", "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n  runtime_type = \"io.containerd.runc.v2\"\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.other]\n  runtime_type = \"io.containerd.other.v1\"\n", 0o644)
	missing := func() []string {
		var all []string
		for _, f := range Examine(t.Context(), n) {
			if f.Code == "binary" {
				all = append(all, f.Object)
			}
		}
		return all
	}
	if got := missing(); len(got) > 0 {
		t.Errorf("where its PATH is not seen, %q are missing", got)
	}
	environ := "proc/" + strconv.Itoa(os.Getpid()) + "/environ"
	write(t, n.Root, environ, "PATH=/opt/k3s/bin:/usr/bin\x00", 0o644)
	write(t, n.Root, "opt/k3s/bin/containerd-shim-runc-v2", "", 0o755)
	write(t, n.Root, "opt/k3s/bin/runc", "", 0o755)
	write(t, n.Root, "usr/local/bin/containerd-shim-other-v1", "", 0o755)
	if got := missing(); !slices.Equal(got, []string{"other"}) {
		t.Errorf("%q are missing", got)
	}
	write(t, n.Root, "opt/beside/containerd-shim-other-v1", "", 0o755)
	write(t, n.Root, "proc/"+strconv.Itoa(os.Getpid())+"/cmdline", "/opt/beside/containerd\x00", 0o644)
	if got := missing(); len(got) > 0 {
		t.Errorf("%q are missing, and one is beside containerd", got)
	}
}

// The shim starts runc where its options name nothing else, and containerd has a handler with it
// by itself.
func TestRuncIsMissing(t *testing.T) {
	const table = "[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes."
	for name, c := range map[string]struct {
		config string
		served cri.Seen
		want   map[string]bool
	}{
		"nothing configured, and down":   {"", cri.Seen{}, map[string]bool{"runc": true}},
		"another configured, and down":   {"version = 3\n" + table + "x]\nruntime_type = \"/opt/x\"\n", cri.Seen{}, map[string]bool{"runc": true, "x": false}},
		"of 1.x, which has none then":    {"version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.x]\nruntime_type = \"/opt/x\"\n", cri.Seen{}, map[string]bool{"runc": false, "x": false}},
		"of the shim by its path":        {"version = 3\n" + table + "y]\nruntime_type = \"/opt/containerd-shim-runc-v2\"\n", cri.Seen{}, map[string]bool{"y": true}},
		"served, and not configured":     {"version = 3\n", cri.Seen{Loaded: map[string]cri.Loaded{"z": {Type: runc}}}, map[string]bool{"z": true, "runc": false}},
		"served with something in place": {"version = 3\n", cri.Seen{Loaded: map[string]cri.Loaded{"z": {Type: runc, Options: map[string]any{"BinaryName": "/opt/x"}}}}, map[string]bool{"z": false}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, program := range []string{"usr/bin/containerd-shim-runc-v2", "opt/containerd-shim-runc-v2", "opt/x"} {
				write(t, root, program, "", 0o755)
			}
			write(t, root, profile.ContainerdMain, c.config, 0o644)
			d, err := profile.Detect(root, profile.Choice{Name: "containerd"})
			if err != nil {
				t.Fatal(err)
			}
			e := &exam{Node: Node{Root: root, proc: t.TempDir()}, dist: d, seen: c.served}
			e.containerd()
			for handler, want := range c.want {
				if got := has(e.all, Error, "binary", handler, "runc, which its shim starts"); got != want {
					t.Errorf("%s: %v in %+v", handler, got, e.all)
				}
			}
		})
	}
}

// CRI-O looks for programs that no file names by names of its own.
func TestProgramsOfCRIO(t *testing.T) {
	const table = "[crio.runtime.runtimes."
	for name, c := range map[string]struct {
		config, programs string
		want             []wanted
	}{
		"all there":           {table + "good]\n", "good conmon", nil},
		"no program":          {table + "gone]\n", "conmon", []wanted{{Error, "binary", "gone", "gone is not on PATH"}}},
		"relative":            {table + "x]\nruntime_path = \"bin/x\"\n", "conmon", []wanted{{Warning, "binary", "x", "depends on the folder"}}},
		"inherited":           {table + "heir]\ninherit_default_runtime = true\n", "", nil},
		"no conmon":           {table + "good]\n", "good", []wanted{{Error, "monitor", "good", "conmon is not on PATH"}}},
		"no such conmon":      {table + "good]\nmonitor_path = \"/opt/conmon\"\n", "good conmon", []wanted{{Error, "monitor", "good", "/opt/conmon is not there"}}},
		"one for all":         {"[crio.runtime]\nconmon = \"/usr/bin/own\"\n" + table + "good]\nmonitor_path = \"/opt/conmon\"\n", "good own", nil},
		"no conmon is needed": {table + "containerd-shim-x-v1]\nruntime_type = \"vm\"\n", "containerd-shim-x-v1", nil},
		"nothing configured":  {"", "conmon", []wanted{{Error, "binary", "crun", "neither crun nor runc"}}},
		"only crun":           {"", "conmon crun", nil},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			write(t, root, "etc/crio/crio.conf.d/10-x.conf", c.config, 0o644)
			for _, program := range strings.Fields(c.programs) {
				write(t, root, "usr/bin/"+program, "", 0o755)
			}
			d, err := profile.Detect(root, profile.Choice{Name: "crio"})
			if err != nil {
				t.Fatal(err)
			}
			e := &exam{Node: Node{Root: root, proc: t.TempDir()}, dist: d}
			e.crio()
			check(t, e.all, c.want...)
			for _, f := range e.all {
				if (f.Code == "binary" || f.Code == "monitor") && len(c.want) == 0 {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

// What is served may be of no file, and gone since.
func TestHandlersOfCRIOThatNoFileNames(t *testing.T) {
	root := t.TempDir()
	write(t, root, "usr/bin/crun", "", 0o755)
	c, err := crio.Load(crio.Layout{Root: root, DropIns: "/etc/crio/crio.conf.d"})
	if err != nil {
		t.Fatal(err)
	}
	e := &exam{Node: Node{Root: root}, seen: cri.Seen{Loaded: map[string]cri.Loaded{"crun": {Path: "/usr/bin/crun"}, "gone": {Path: "/usr/bin/gone"}}}}
	e.builtIn(c, c.Handlers())
	if len(e.all) != 1 || !has(e.all, Error, "binary", "gone", "/usr/bin/gone") {
		t.Errorf("%+v", e.all)
	}
}
