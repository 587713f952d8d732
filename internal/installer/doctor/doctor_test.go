package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead.run/internal/installer/cri"
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
	e.monitored()
	if len(e.all) != 1 || !has(e.all, Error, "monitor", "lost", "SIGHUP") {
		t.Errorf("%+v", e.all)
	}
}

// runsc is no program that CRI-O can start containers with, its shim is.
func TestCRIOWithRunsc(t *testing.T) {
	e := &exam{seen: cri.Seen{Loaded: map[string]cri.Loaded{
		"program": {Type: "oci", Path: "/usr/local/bin/runsc", Monitor: "/usr/bin/conmon"}, "shim": {Type: "vm", Path: "/usr/bin/containerd-shim-runsc-v2"},
	}}}
	e.monitored()
	if len(e.all) != 1 || !has(e.all, Error, "handler", "program", "hang") {
		t.Errorf("%+v", e.all)
	}
}

func TestNoRuntime(t *testing.T) {
	if all := Examine(t.Context(), Node{Root: t.TempDir(), proc: t.TempDir()}); !has(all, Error, "runtime", "node", "no socket") {
		t.Errorf("%+v", all)
	}
}

// What installers leave is where the distribution has its configuration.
func TestLeftovers(t *testing.T) {
	const tmp = "/.fairlead-tmp-1"
	for name, c := range map[string]struct {
		distribution, config string
		left                 []string
	}{
		"containerd":           {distribution: "containerd", left: []string{"etc/containerd" + tmp, "etc/systemd/system" + tmp, "etc/containerd/config.toml.bak.1", "etc/containerd/conf.d/kata-deploy.toml", "etc/containerd/conf.d/99-nvidia.toml"}},
		"containerd elsewhere": {distribution: "containerd", config: "/opt/containerd/config.toml", left: []string{"opt/containerd" + tmp}},
		"crio":                 {distribution: "crio", left: []string{"etc/crio" + tmp, "etc/crio/crio.conf.d/99-kata-deploy"}},
		"crio elsewhere":       {distribution: "crio", config: "/opt/crio.conf", left: []string{"opt" + tmp, "opt/crio.conf.d/99-kata-deploy"}},
		"k3s":                  {distribution: "k3s", left: []string{"var/lib/rancher/k3s/agent/etc/containerd" + tmp, "var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d/kata-deploy.toml", "var/lib/rancher/k3s/agent/etc/containerd/config.toml.tmpl.bak"}},
		"rke2":                 {distribution: "rke2", left: []string{"var/lib/rancher/rke2/agent/etc/containerd" + tmp}},
		"k0s":                  {distribution: "k0s", left: []string{"etc/k0s" + tmp, "etc/k0s/containerd.d/kata-deploy.toml", "etc/k0s/containerd.d/99-nvidia.toml"}},
		"microk8s":             {distribution: "microk8s", left: []string{"var/snap/microk8s/7000/args" + tmp, "var/snap/microk8s/7000/args/containerd-template.toml.bak"}},
		"KWasm":                {distribution: "containerd", left: []string{"opt/kwasm"}},
		"KWasm in a snap":      {distribution: "microk8s", left: []string{"var/snap/microk8s/common/kwasm"}},
		"none is known":        {left: []string{"etc/containerd" + tmp, "etc/k0s" + tmp}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, path := range c.left {
				write(t, root, path, "", 0o644)
			}
			if name == "microk8s" {
				// A snap's folder is behind a link, which means a folder of the node.
				if err := os.Symlink("/var/snap/microk8s/7000", filepath.Join(root, "var/snap/microk8s/current")); err != nil {
					t.Fatal(err)
				}
			}
			// What an admin has there is none of it.
			write(t, root, "etc/k0s/k0s.yaml.bak", "", 0o644)
			write(t, root, "etc/systemd/system/x.service.d/kata.conf", "", 0o644)
			write(t, root, "etc/containerd/conf.d/mine.toml", "", 0o644)
			n := Node{Root: root, proc: t.TempDir(), Choice: profile.Choice{Name: c.distribution}, Override: profile.Override{Config: c.config}}
			all := Examine(t.Context(), n)
			for _, path := range c.left {
				if !has(all, Warning, "leftover", filepath.Join(root, path), "") {
					t.Errorf("%s is not told of", path)
				}
			}
			for _, f := range all {
				if f.Code == "leftover" && !slices.Contains(c.left, strings.TrimPrefix(f.Object, root+"/")) {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

// Kata that fairlead install has brought is not told of as what others have left, wherever
// it was put.
func TestOwnKataIsNoLeftover(t *testing.T) {
	for _, name := range []string{"containerd", "crio"} {
		root := t.TempDir()
		write(t, root, "etc/containerd/conf.d/fairlead-kata-containers.toml", "version = 3\n", 0o644)
		write(t, root, "etc/crio/crio.conf.d/99-fairlead-kata.conf", "", 0o644)
		write(t, root, "opt/kata/1-a/shim", "", 0o755)
		write(t, root, "var/lib/fairlead-installer/kata.type.json", `{"type":"kata","base":"/opt/kata"}`, 0o600)
		write(t, root, "etc/containerd/conf.d/kata-deploy.toml", "version = 3\n", 0o644)
		var left []string
		for _, f := range Examine(t.Context(), Node{Root: root, proc: t.TempDir(), Choice: profile.Choice{Name: name}}) {
			if f.Code == "leftover" {
				left = append(left, strings.TrimPrefix(f.Object, root))
			}
		}
		if !slices.Equal(left, []string{"/etc/containerd/conf.d/kata-deploy.toml"}) {
			t.Errorf("%s: %q are told of", name, left)
		}
	}
}

// containerd 1.x has handlers by tables of their own, and 2.x reads these no longer.
func TestOldTablesOfHandlers(t *testing.T) {
	const plugin = `plugins."io.containerd.grpc.v1.cri".containerd`
	for release, code := range map[string]string{"1.7.28": "", "2.4.2": "handler"} {
		c := containerdServing("runc", "default", "untrusted")
		c.Release = release
		n := serve(t, c, "run/containerd/containerd.sock", "/usr/bin/containerd")
		n.Choice.Name = "containerd"
		write(t, n.Root, profile.ContainerdMain, "version = 2\n["+plugin+".runtimes.runc]\n  runtime_type = \"/opt/shim\"\n["+plugin+".default_runtime]\n  runtime_type = \"/opt/shim\"\n["+plugin+".untrusted_workload_runtime]\n  runtime_type = \"/opt/gone\"\n", 0o644)
		write(t, n.Root, "opt/shim", "", 0o755)
		all := Examine(t.Context(), n)
		old := release == "1.7.28"
		if got := has(all, OK, "handler", "default", "configured and served"); got != old {
			t.Errorf("%s: %v, %+v", release, got, all)
		}
		if got := has(all, Error, "binary", "untrusted", "/opt/gone"); got != old {
			t.Errorf("%s: %v, %+v", release, got, all)
		}
		for _, f := range all {
			if f.Code == "handler" && f.Level != OK && code == "" {
				t.Errorf("%s: %+v", release, f)
			}
		}
	}
}
