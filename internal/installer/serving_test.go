package installer

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/containerd"
	"fairlead.run/internal/installer/cri"
	"fairlead.run/internal/installer/journal"
)

// What a node serves is what the runtime says, by the settings and the programs that
// were verified.
func TestServedOf(t *testing.T) {
	root := t.TempDir()
	shim := "/opt/bin/gvisor/1/shim"
	if err := os.MkdirAll(filepath.Join(root, filepath.Dir(shim)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, shim), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	i := &Installer{options: Options{Root: root}}
	i.dist.Runtime = "containerd"
	handler := func(name, path string) containerd.Handler {
		return containerd.Handler{Name: name, ContainerdHandler: payload.ContainerdHandler{RuntimeType: "io.containerd.runsc.v1", RuntimePath: path}}
	}
	render, err := json.Marshal([]containerd.Handler{handler("runsc", shim), handler("runsc-kvm", shim), handler("gone", "/opt/bin/gvisor/1/other")})
	if err != nil {
		t.Fatal(err)
	}
	r := &journal.Release{Handlers: []string{"runsc-kvm", "runsc", "gone"}, Render: render}
	loaded := func(shim string) cri.Loaded { return cri.Loaded{Type: shim} }
	for name, test := range map[string]struct {
		seen cri.Seen
		want []string
	}{
		"all that can be": {cri.Seen{
			Handlers: []string{"gone", "runc", "runsc", "runsc-kvm"},
			Loaded:   map[string]cri.Loaded{"runsc": loaded(shim), "runsc-kvm": loaded(shim), "gone": loaded("/opt/bin/gvisor/1/other")},
		}, []string{"runsc", "runsc-kvm"}},
		"one that somebody has pointed elsewhere": {cri.Seen{
			Handlers: []string{"runsc", "runsc-kvm"}, Loaded: map[string]cri.Loaded{"runsc": loaded("/usr/bin/mine"), "runsc-kvm": loaded(shim)},
		}, []string{"runsc-kvm"}},
		"none":               {cri.Seen{Handlers: []string{"runc"}}, []string{}},
		"it does not say so": {cri.Seen{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := i.servedOf(test.seen, r)
			if !slices.Equal(got, test.want) || (got == nil) != (test.want == nil) {
				t.Errorf("%#v, not %#v", got, test.want)
			}
		})
	}
}

// A program behind links is where the node finds it: what this machine has at the same
// place, or does not have, says nothing.
func TestProgramsBehindLinksOfTheNode(t *testing.T) {
	root := t.TempDir()
	here, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "opt/real"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "opt/real/shim"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"opt/bin": "/opt/real", "opt/shim": "/opt/real/shim", "opt/real/again": "/opt/shim", "opt/gone": "/opt/real/none", "opt/ours": here} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	i := &Installer{options: Options{Root: root}}
	for program, want := range map[string]bool{
		"": true, "/opt/real/shim": true, "/opt/bin/shim": true, "/opt/shim": true, "/opt/bin/again": true, "/opt/gone": false, "/opt/ours": false, here: false,
	} {
		if got := i.there(program); got != want {
			t.Errorf("%q is there: %v", program, got)
		}
	}
	for file, ok := range map[string]bool{"/opt/shim": true, "/opt/ours": false} {
		if err := i.writable(file); (err == nil) != ok {
			t.Errorf("%s can be written: %v", file, err)
		}
	}
}

// What an image says of its node is read where the links of the node lead, of the folder
// and of the file, and stays as it is. What this machine has at that place is not heard.
func TestMetadataBehindLinksOfTheNode(t *testing.T) {
	n := newNode(t, 2)
	here := filepath.Join(t.TempDir(), "node.json") // it is there on this machine, and not on the node
	if err := os.WriteFile(here, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	const text = `{"apiVersion":"payload.fairlead.run/v1alpha1","kind":"NodeMetadata","by":"images","binaryPath":"/opt/bin"}`
	n.write("usr/share/images/node.json", text)
	n.write("data/installer/notes", "")
	link := func(name, to string) {
		t.Helper()
		_ = os.Remove(n.path(name))
		if err := os.Symlink(to, n.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	link("var/lib/fairlead-installer", "/data/installer")
	link("data/installer/node.json", "../../usr/share/images/node.json")
	i := n.installer()
	if i.binaryPath != "/opt/bin" {
		t.Errorf("programs go to %s", i.binaryPath)
	}
	if err := errors.Join(i.describe(), i.purge()); err != nil {
		t.Error(err)
	}
	if to, err := os.Readlink(n.path("data/installer/node.json")); err != nil || to != "../../usr/share/images/node.json" || n.read("usr/share/images/node.json") != text {
		t.Errorf("it leads to %q: %v", to, err)
	}
	link("data/installer/node.json", here)
	if _, err := newInstaller(n.root, time.Minute); err == nil || !strings.Contains(err.Error(), "/var/lib/fairlead-installer/node.json is a link to "+here) {
		t.Errorf("a file of this machine is read: %v", err)
	}
	link("data/installer/node.json", "/usr/share/images/node.json")
	link("var/lib/fairlead-installer", filepath.Dir(here))
	if i := n.installer(); i.binaryPath != "/usr/bin" {
		t.Errorf("programs go to %s", i.binaryPath)
	}
}
