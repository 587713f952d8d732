package installer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	payload "fairlead.run/api/payload/v1alpha1"
)

// Distributions of Kubernetes write the configuration of their containerd anew before each
// start: k3s and rke2 of a template or with a folder that is imported, microk8s of a
// template with variables, and k0s merges drop-ins into a file that it imports.
const (
	k3sFolder  = "/var/lib/rancher/k3s/agent/etc/containerd/"
	rke2Folder = "/var/lib/rancher/rke2/agent/etc/containerd/"
	snapFolder = "/var/snap/microk8s/current/args/"
	k0sFolder  = "/etc/k0s/containerd.d/"
	k0sMerged  = "/run/k0s/containerd-cri.toml"
)

// templated makes the main file of a template if there is one.
func templated(main, template string) func(*node) {
	return func(n *node) {
		text, err := os.ReadFile(n.path(template))
		if err != nil {
			text = []byte("{{ template \"base\" . }}\n")
		}
		n.write(main, strings.NewReplacer(`{{ template "base" . }}`, n.adminConfig(), "${RUNTIME_TYPE}", "io.containerd.runc.v2").Replace(string(text)))
	}
}

// imported makes a main file that imports a folder.
func imported(n *node) {
	n.write(k3sFolder+"config.toml", "imports = [\""+k3sFolder+"config-v3.toml.d/*.toml\"]\n"+n.adminConfig())
}

// merged makes one file of all that are in the folder.
func merged(n *node) {
	all := n.adminConfig() + "\n"
	found, err := filepath.Glob(n.path(k0sFolder) + "/*.toml")
	if err != nil {
		n.Fatal(err)
	}
	for _, path := range found {
		data, err := os.ReadFile(path)
		if err != nil {
			n.Fatal(err)
		}
		lines := slices.DeleteFunc(strings.Split(string(data), "\n"), func(l string) bool { return strings.HasPrefix(l, "version =") })
		all += strings.Join(lines, "\n") + "\n"
	}
	n.write(k0sMerged, all)
	n.write("/etc/k0s/containerd.toml", "# k0s_managed=true\nimports = [\""+k0sMerged+"\"]\n"+strings.SplitAfter(n.adminConfig(), "\n")[1])
}

// All that is done to a node's own containerd is done to that of each distribution.
func TestDistributions(t *testing.T) {
	const k3sSocket = "run/k3s/containerd/containerd.sock"
	for name, c := range map[string]struct {
		major int
		setup setup
		files map[string]string
	}{
		"k3s with containerd 1.7": {major: 1, setup: setup{"k3s", k3sSocket, k3sFolder + "config.toml", templated(k3sFolder+"config.toml", k3sFolder+"config.toml.tmpl")}},
		"k3s with containerd 2":   {major: 2, setup: setup{"k3s", k3sSocket, k3sFolder + "config.toml", templated(k3sFolder+"config.toml", k3sFolder+"config-v3.toml.tmpl")}},
		"k3s with a folder":       {major: 2, setup: setup{"k3s", k3sSocket, k3sFolder + "config.toml", imported}},
		"rke2 with a template": {
			major: 2, setup: setup{"rke2", k3sSocket, rke2Folder + "config.toml", templated(rke2Folder+"config.toml", rke2Folder+"config-v3.toml.tmpl")},
			files: map[string]string{rke2Folder + "config-v3.toml.tmpl": "# of an admin\n{{ template \"base\" . }}\n# its end"},
		},
		"k0s with containerd 1.7": {major: 1, setup: setup{"k0s", "run/k0s/containerd.sock", "/etc/k0s/containerd.toml", merged}},
		"k0s with containerd 2":   {major: 2, setup: setup{"k0s", "run/k0s/containerd.sock", "/etc/k0s/containerd.toml", merged}},
		"microk8s": {
			major: 1, setup: setup{"microk8s", "var/snap/microk8s/common/run/containerd.sock", snapFolder + "containerd.toml", templated(snapFolder+"containerd.toml", snapFolder+"containerd-template.toml")},
			files: map[string]string{snapFolder + "containerd-template.toml": strings.ReplaceAll((&node{major: 1}).adminConfig(), "io.containerd.runc.v2", "${RUNTIME_TYPE}")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(distributionEnv, c.setup.distribution)
			n := newNodeWith(t, c.major, c.setup, c.files)
			n.serves("runc", "foreign")
			before := n.tree("")

			n.install(bundle(t, "a", "1", "1"), bundle(t, "b", "1", "1"))
			n.serves("runc", "foreign", "a", "b")
			old, same := n.shim("a"), bundle(t, "a", "2", "2")
			n.install(same)
			n.serves("runc", "foreign", "a", "b")
			if n.shim("a") == old {
				t.Errorf("a is served from %s as before", old)
			}
			if restarts := n.count(); n.install(same) == nil || n.count() != restarts {
				t.Error("what is installed takes another restart")
			}

			n.fatal = "c"
			i := n.installer()
			i.options.Wait = 500 * time.Millisecond
			if r := i.Install(t.Context(), sources([]string{bundle(t, "c", "1", "1")}))[0]; r.State != payload.RolledBack {
				t.Errorf("%+v", r)
			}
			n.fatal = ""
			n.serves("runc", "foreign", "a", "b")

			for _, place := range []string{"install.half-written", "install.restarting", "install.verified"} {
				if !n.killed(place, bundle(t, "a", "3", place)) {
					t.Fatalf("nobody was killed at %s", place)
				}
				n.restart() // the node boots
				n.install(same)
				n.serves("runc", "foreign", "a", "b")
			}
			n.uninstall("a", "c")
			n.serves("runc", "foreign", "b")
			n.uninstall("b")
			n.serves("runc", "foreign")
			n.same(before, "")
		})
	}
}
