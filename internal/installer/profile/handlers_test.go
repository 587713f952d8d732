package profile

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/containerd"
	"fairlead.run/internal/installer/fault"
)

const (
	k3sDir   = "/var/lib/rancher/k3s/agent/etc/containerd/"
	rke2Dir  = "/var/lib/rancher/rke2/agent/etc/containerd/"
	snapDir  = "/var/snap/microk8s/current/args/"
	base     = "{{ template \"base\" . }}\n"
	imports  = "imports = [\"" + k3sDir + "config-v3.toml.d/*.toml\"]\nversion = 3\n"
	snapText = "version = 2\n\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n  runtime_type = \"${RUNTIME_TYPE}\"\n"
)

// With a distribution that makes containerd's configuration itself, two types come and go:
// both are in the file that it makes that of, and all files are as before at the end.
func TestHandlersOfDistributions(t *testing.T) {
	for name, c := range map[string]struct {
		distribution string
		files        map[string]string
		// in is the file in which the handlers are, and table how their tables begin.
		in, table string
		// begins is how that file begins meanwhile.
		begins string
	}{
		"k3s without a template":          {"k3s", map[string]string{k3sDir + "config.toml": "version = 2\n"}, k3sDir + "config.toml.tmpl", `[plugins."io.containerd.grpc.v1.cri".`, base},
		"k3s of version 3":                {"k3s", map[string]string{k3sDir + "config.toml": "version = 3\n"}, k3sDir + "config-v3.toml.tmpl", `[plugins."io.containerd.cri.v1.runtime".`, base},
		"k3s with a folder":               {"k3s", map[string]string{k3sDir + "config.toml": imports}, k3sDir + "config-v3.toml.d/fairlead-a.toml", `[plugins."io.containerd.cri.v1.runtime".`, "# Written by"},
		"rke2 with somebody's template":   {"rke2", map[string]string{rke2Dir + "config.toml": "version = 2\n", rke2Dir + "config.toml.tmpl": base + "{{ if .X }}\n[debug]{{ end }}"}, rke2Dir + "config.toml.tmpl", `[plugins."io.containerd.grpc.v1.cri".`, base + "{{ if .X }}\n[debug]{{ end }}"},
		"rke2 with an unchanged template": {"rke2", map[string]string{rke2Dir + "config.toml": "version = 2\n", rke2Dir + "config.toml.tmpl": "# mine\n" + base}, rke2Dir + "config.toml.tmpl", `[plugins."io.containerd.grpc.v1.cri".`, "# mine\n" + base},
		"k0s":                             {"k0s", map[string]string{"/etc/k0s/containerd.toml": "# k0s_managed=true\nversion = 3\nimports = [\"/run/k0s/containerd-cri.toml\"]\n"}, "/etc/k0s/containerd.d/fairlead-a.toml", `[plugins."io.containerd.cri.v1.runtime".`, "# Written by"},
		"k0s of version 2":                {"k0s", map[string]string{"/etc/k0s/containerd.toml": "version = 2\n"}, "/etc/k0s/containerd.d/fairlead-a.toml", `[plugins."io.containerd.grpc.v1.cri".`, "# Written by"},
		"microk8s":                        {"microk8s", map[string]string{snapDir + "containerd.toml": "version = 2\n", snapDir + "containerd-template.toml": snapText}, snapDir + "containerd-template.toml", `[plugins."io.containerd.grpc.v1.cri".`, snapText},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for path, text := range c.files {
				write(t, root, path, []byte(text))
			}
			a := containerd.Want{Type: "a", Handlers: []containerd.Handler{handler("a")}}
			b := containerd.Want{Type: "b", Handlers: []containerd.Handler{handler("b")}}
			apply(t, root, c.distribution, a)
			apply(t, root, c.distribution, b)
			text := files(t, root)[c.in]
			if !strings.HasPrefix(text, c.begins) || !strings.Contains(text, c.table+"containerd.runtimes.a]\n") {
				t.Errorf("%s has\n%s", c.in, text)
			}
			if again := apply(t, root, c.distribution, a); again > 0 {
				t.Errorf("what is there already is changed by %d files", again)
			}
			apply(t, root, c.distribution, containerd.Want{Type: "a", Owned: []string{"a"}})
			if all := strings.Join(slices.Collect(maps.Values(files(t, root))), ""); strings.Contains(all, "runtimes.a]") || !strings.Contains(all, "runtimes.b]") {
				t.Errorf("without the first type it is\n%s", all)
			}
			apply(t, root, c.distribution, containerd.Want{Type: "b", Owned: []string{"b"}})
			if left := files(t, root); !maps.Equal(left, c.files) {
				t.Errorf("in the end there is\n%q\nand was\n%q", left, c.files)
			}
		})
	}
}

// What cannot be added to is refused before anything is written.
func TestHandlersRefused(t *testing.T) {
	for name, c := range map[string]struct {
		distribution string
		files        map[string]string
		says         string
	}{
		"somebody has the handler": {"k3s", map[string]string{k3sDir + "config.toml": "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.a]\n"}, k3sDir + "config.toml:2: handler a is configured by somebody else"},
		"the CRI is disabled":      {"k0s", map[string]string{"/etc/k0s/containerd.toml": "version = 2\ndisabled_plugins = [\"cri\"]\n"}, "disabled_plugins"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for path, text := range c.files {
				write(t, root, path, []byte(text))
			}
			_, err := planned(t, root, c.distribution, containerd.Want{Type: "a", Handlers: []containerd.Handler{handler("a")}})
			if fault.Of(err) == "" || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

func handler(name string) containerd.Handler {
	return containerd.Handler{Name: name, ContainerdHandler: payload.ContainerdHandler{RuntimeType: "io.containerd.runc.v2"}}
}

func planned(t *testing.T, root, distribution string, w containerd.Want) ([]containerd.Change, error) {
	t.Helper()
	d, err := Detect(root, Choice{Name: distribution})
	if err != nil {
		t.Fatal(err)
	}
	c, err := containerd.Load(d.Containerd)
	if err != nil {
		t.Fatal(err)
	}
	daemon := containerd.Daemon{Major: 2, Minor: 1}
	if c.Version < 3 {
		daemon = containerd.Daemon{Major: 1, Minor: 7}
	}
	return c.Plan(daemon, w)
}

// apply makes the changes of a plan, and says how many there are.
func apply(t *testing.T, root, distribution string, w containerd.Want) int {
	t.Helper()
	changes, err := planned(t, root, distribution, w)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		write(t, root, c.Path, c.Data)
	}
	return len(changes)
}

func write(t *testing.T, root, path string, data []byte) {
	t.Helper()
	path = filepath.Join(root, path)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil && data == nil {
		err = os.Remove(path)
	} else if err == nil {
		err = os.WriteFile(path, data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// files are all below a folder.
func files(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, root)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
