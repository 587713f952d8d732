package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.run/internal/installer/cri"
	"fairlead.run/internal/installer/crio"
	"fairlead.run/internal/installer/profile"
)

func write(t *testing.T, root, name, text string, mode os.FileMode) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// has looks for a finding.
func has(all []Finding, level Level, code, object, text string) bool {
	for _, f := range all {
		if f.Level == level && f.Code == code && f.Object == object && strings.Contains(f.Text, text) {
			return level == OK || f.Fix != ""
		}
	}
	return false
}

func TestContainerd(t *testing.T) {
	root := t.TempDir()
	write(t, root, "etc/containerd/config.toml", `version = 3
imports = ["/etc/containerd/conf.d/*.toml", "/etc/none.toml"]
[plugins."io.containerd.grpc.v1.cri"]
  a = 1
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.good]
  runtime_type = "/opt/good"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.gone]
  runtime_type = "/opt/gone"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.hidden]
  runtime_type = "io.containerd.hidden.v2"
  runtime_path = "/opt/good"
`, 0o644)
	write(t, root, "etc/containerd/conf.d/x.toml", "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.named]\n  runtime_type = \"io.containerd.named.v1\"\n", 0o644)
	write(t, root, "etc/os-release", "ID=sles\nVARIANT_ID=chost\n", 0o644)
	write(t, root, "opt/good", "", 0o755)
	write(t, root, "opt/kata/x", "", 0o644)
	all := Examine(t.Context(), Node{Root: root, proc: t.TempDir(), Choice: profile.Choice{Name: "containerd"}})
	for _, want := range []struct {
		level              Level
		code, object, text string
	}{
		{Error, "socket", "/run/containerd/containerd.sock", ""},
		{Warning, "ctr", "ctr", "not on this node"},
		{Error, "import", "/etc/none.toml", "not there"},
		{Warning, "config", "/etc/containerd/config.toml", "io.containerd.grpc.v1.cri"},
		{OK, "config", "/etc/containerd/config.toml", "version 3, 2 files"},
		{Error, "binary", "gone", "/opt/gone"},
		{Warning, "binary", "hidden", "loses running containers"},
		{Error, "binary", "named", "containerd-shim-named-v1"},
		{Warning, "leftover", filepath.Join(root, "opt/kata"), "kata-deploy"},
		{Warning, "kvm", "/dev/kvm", "not there"},
		{Error, "cgroups", "/sys/fs/cgroup", "no cgroups"},
	} {
		if !has(all, want.level, want.code, want.object, want.text) {
			t.Errorf("not found: %+v in\n%+v", want, all)
		}
	}
	for _, f := range all {
		if f.Object == "good" {
			t.Errorf("%+v", f)
		}
	}
}

func TestCRIO(t *testing.T) {
	root := t.TempDir()
	write(t, root, "etc/crio/crio.conf.d/10-x.conf", "[crio.runtime.runtimes.gone]\nruntime_path = \"/opt/gone\"\n", 0o644)
	write(t, root, "etc/crio/crio.conf.d/.10-y.conf.tmp", "[crio.runtime.runtimes.half]\n", 0o644)
	write(t, root, "etc/crio/crio.conf.d/20-z.conf", "[[[", 0o644)
	all := Examine(t.Context(), Node{Root: root, proc: t.TempDir(), Choice: profile.Choice{Name: "crio"}})
	if !has(all, Error, "binary", "gone", "/opt/gone") || !has(all, Error, "config", "/etc/crio/crio.conf.d", "20-z.conf") ||
		!has(all, Warning, "config", "/etc/crio/crio.conf.d/.10-y.conf.tmp", "half written") {
		t.Errorf("%+v", all)
	}
}

// By SIGHUP, CRI-O forgets who watches over containers.
func TestCRIOWithoutMonitors(t *testing.T) {
	e := &exam{seen: cri.Seen{Loaded: map[string]cri.Loaded{"lost": {}, "watched": {Monitor: "/usr/bin/conmon"}, "shim": {Type: "vm"}}}}
	e.dist.CRIO = crio.Layout{Root: t.TempDir(), Main: "/etc/crio/crio.conf", DropIns: "/etc/crio/crio.conf.d"}
	e.crio()
	if len(e.all) != 1 || !has(e.all, Error, "monitor", "lost", "SIGHUP") {
		t.Errorf("%+v", e.all)
	}
}

// runsc is no program that CRI-O can start containers with, its shim is.
func TestCRIOWithRunsc(t *testing.T) {
	e := &exam{seen: cri.Seen{Loaded: map[string]cri.Loaded{
		"program": {Type: "oci", Path: "/usr/local/bin/runsc", Monitor: "/usr/bin/conmon"}, "shim": {Type: "vm", Path: "/usr/bin/containerd-shim-runsc-v2"},
	}}}
	e.dist.CRIO = crio.Layout{Root: t.TempDir(), Main: "/etc/crio/crio.conf", DropIns: "/etc/crio/crio.conf.d"}
	e.crio()
	if len(e.all) != 1 || !has(e.all, Error, "handler", "program", "hang") {
		t.Errorf("%+v", e.all)
	}
}

func TestNoRuntime(t *testing.T) {
	if all := Examine(t.Context(), Node{Root: t.TempDir(), proc: t.TempDir()}); !has(all, Error, "runtime", "node", "no socket") {
		t.Errorf("%+v", all)
	}
}
