package profile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/fault"
	"fairlead.run/internal/installer/view"
)

func touch(t *testing.T, root string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("version = 3\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDetectOS(t *testing.T) {
	for release, want := range map[string]string{
		"ID=ubuntu\nID_LIKE=debian":               "ubuntu /usr/bin",
		"ID=debian":                               "debian /usr/bin",
		"ID=flatcar\nID_LIKE=coreos":              "coreos /var/bin",
		"ID=fedora\nVARIANT_ID=coreos":            "coreos /var/bin",
		"ID=\"sles\"\nID_LIKE=\"suse\"":           "suse-chost /usr/sbin",
		"ID=sles\nVARIANT_ID=chost":               "suse-chost /usr/sbin",
		"ID=rocky\nID_LIKE='rhel centos fedora'":  "rhel /usr/bin",
		"ID=linuxmint\nID_LIKE=\"ubuntu debian\"": "ubuntu /usr/bin",
		"ID=plan9": "plan9 ",
		"ID=bottlerocket\nVARIANT_ID=aws-k8s-1.30": "!read-only",
		"ID=cos": "!noexec",
	} {
		root := t.TempDir()
		touch(t, root, "etc/os-release")
		if err := os.WriteFile(filepath.Join(root, "etc/os-release"), []byte("# x\n"+release+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := DetectOS(root, "")
		if refused, ok := strings.CutPrefix(want, "!"); ok {
			if fault.Of(err) != payload.UnsupportedNode || !strings.Contains(err.Error(), refused) {
				t.Errorf("%q: %v", release, err)
			}
			continue
		}
		if err != nil || got.Name+" "+got.BinaryPath != want {
			t.Errorf("%q: %+v %v, want %s", release, got, err, want)
		}
	}
	if _, err := DetectOS(t.TempDir(), "windows"); err == nil {
		t.Error("windows has a profile")
	}
	if _, err := DetectOS(t.TempDir(), "talos"); fault.Of(err) != payload.UnsupportedNode {
		t.Errorf("talos by its name: %v", err)
	}
}

func TestCheckImage(t *testing.T) {
	for _, test := range []struct{ release, image, says string }{
		{"ID=ubuntu\nPRETTY_NAME=\"Ubuntu 22.04.4 LTS\"", "ubuntu", ""},
		{"ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"", "ubuntu", "this node has Debian GNU/Linux 12 (bookworm), and its pool is of machine image ubuntu"},
		{"ID=gardenlinux\nID_LIKE=debian", "debian", "this node has gardenlinux"},
		{"ID=flatcar\nID_LIKE=coreos", "coreos", ""},
		{"ID=sles\nVARIANT_ID=chost", "suse-chost", ""},
		{"ID=debian", "", ""},
		{"ID=debian", "image-of-our-own", ""},
		{"ID=linuxmint\nID_LIKE=\"ubuntu debian\"", "ubuntu", ""}, // what is not known is not refused
		{"", "ubuntu", ""},
	} {
		root := t.TempDir()
		if err := os.MkdirAll(filepath.Join(root, "etc"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "etc/os-release"), []byte(test.release+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		err := CheckImage(root, test.image)
		if test.says == "" && err != nil || test.says != "" && (fault.Of(err) != payload.UnsupportedNode || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%q on %q: %v", test.image, test.release, err)
		}
	}
	if err := CheckImage(t.TempDir(), "ubuntu"); err != nil {
		t.Errorf("without os-release: %v", err)
	}
}

func TestCheckBinaryPath(t *testing.T) {
	coreos := OS{Name: "coreos"}
	for path, ok := range map[string]bool{"": false, "/": false, "usr": false, "/usr/../bin": false, "/usr/bin/": false, "/usr/bin": false, "/usr": false, "/var/bin": true, "/opt": true} {
		if err := CheckBinaryPath(path, coreos); (err == nil) != ok {
			t.Errorf("%q: %v", path, err)
		}
	}
	if err := CheckBinaryPath("/usr/bin", OS{Name: "ubuntu"}); err != nil {
		t.Error(err)
	}
}

func TestDetect(t *testing.T) {
	const k3s, rke2 = "var/lib/rancher/k3s/agent/etc/containerd/config.toml", "var/lib/rancher/rke2/agent/etc/containerd/config.toml"
	for name, c := range map[string]struct {
		files  []string
		choice Choice
		want   string
	}{
		"none":             {nil, Choice{}, "!no socket"},
		"containerd":       {[]string{"run/containerd/containerd.sock"}, Choice{}, "containerd"},
		"crio":             {[]string{"run/crio/crio.sock"}, Choice{}, "crio"},
		"k3s":              {[]string{"run/k3s/containerd/containerd.sock", k3s}, Choice{}, "k3s"},
		"rke2":             {[]string{"run/k3s/containerd/containerd.sock", rke2}, Choice{}, "rke2"},
		"k0s":              {[]string{"run/k0s/containerd.sock"}, Choice{}, "k0s"},
		"microk8s":         {[]string{"var/snap/microk8s/common/run/containerd.sock"}, Choice{}, "microk8s"},
		"two":              {[]string{"run/containerd/containerd.sock", "run/k0s/containerd.sock"}, Choice{}, "!several"},
		"the kubelet says": {[]string{"run/containerd/containerd.sock", "run/k0s/containerd.sock"}, Choice{Endpoint: "unix:///run/k0s/containerd.sock"}, "k0s"},
		"of /var/run":      {[]string{"run/containerd/containerd.sock", "run/k0s/containerd.sock"}, Choice{Endpoint: "/var/run/containerd/containerd.sock"}, "containerd"},
		"runtime is said":  {[]string{"run/containerd/containerd.sock", "run/crio/crio.sock"}, Choice{Runtime: "crio"}, "crio"},
		"unknown endpoint": {[]string{"run/containerd/containerd.sock"}, Choice{Endpoint: "/run/other.sock"}, "!/run/other.sock"},
		"said":             {nil, Choice{Name: "k3s"}, "k3s"},
		"unknown":          {nil, Choice{Name: "k9s"}, "!k9s"},
		"contradiction":    {nil, Choice{Name: "k3s", Runtime: "crio"}, "!k3s"},
	} {
		root := t.TempDir()
		touch(t, root, c.files...)
		got, err := Detect(root, c.choice)
		if refused, ok := strings.CutPrefix(c.want, "!"); ok {
			if err == nil || !strings.Contains(err.Error(), refused) {
				t.Errorf("%s: %+v %v", name, got, err)
			}
			continue
		}
		if err != nil || got.Name != c.want {
			t.Errorf("%s: %+v %v", name, got, err)
		}
		if name == "k3s" && filepath.Base(got.Containerd.Template) != "config-v3.toml.tmpl" {
			t.Errorf("the template is %s", got.Containerd.Template)
		}
	}
}

// What a pod sees of a node has all that the installer reads and writes there.
func TestViewsHaveAll(t *testing.T) {
	for _, d := range distributions {
		places, err := view.Want{Distribution: d.Name, BinaryPath: "/usr/bin"}.Places()
		if err != nil {
			t.Error(err)
			continue
		}
		covered := func(path string, write bool) {
			for _, p := range places {
				if strings.HasPrefix(path, p.Path+"/") && (p.Write || !write) {
					return
				}
			}
			if path != "" {
				t.Errorf("%s: %s is not seen, or cannot be written", d.Name, path)
			}
		}
		folder := func(path string) {
			if path != "" {
				covered(filepath.Join(path, "x"), true)
			}
		}
		root := t.TempDir()
		if d.Containerd.Main != "" {
			touch(t, root, d.Containerd.Main)
		}
		at := d.at(root)
		covered(d.Socket, false)
		covered(at.Containerd.Main, true)
		covered(at.Containerd.Template, true)
		covered(at.CRIO.Main, true)
		folder(at.Containerd.DropIns)
		folder(at.CRIO.DropIns)
	}
}

// TestUnit never takes the unit of a server for that of an agent.
func TestUnit(t *testing.T) {
	const server, agent = "rke2-server.service", "rke2-agent.service"
	const units, wants = "usr/local/lib/systemd/system/", "etc/systemd/system/multi-user.target.wants/"
	both := []string{units + server, units + agent}
	for name, c := range map[string]struct {
		files        []string
		cgroup, want string
		says         string
	}{
		"an agent alone":           {files: []string{units + agent}, want: agent},
		"both, and the agent runs": {files: both, cgroup: "0::/system.slice/" + agent + "\n", want: agent},
		"both, and the server runs, seen from a container with cgroup v1": {files: both, cgroup: "12:pids:/../../system.slice/" + server + "\n11:cpu:/x\n", want: server},
		"both, and the runtime is in a cgroup below the agent's":          {files: both, cgroup: "0::/system.slice/" + agent + "/runtime\n", want: agent},
		"both, and the agent is enabled":                                  {files: append([]string{wants + agent}, both...), want: agent},
		"both, and nothing tells":                                         {files: both, cgroup: "0::/user.slice\n", says: "rke2-server.service and rke2-agent.service are here"},
		"both, and both are enabled":                                      {files: append([]string{wants + agent, wants + server}, both...), says: "name it by --unit"},
		"none":                                                            {says: "none of the units"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			touch(t, root, c.files...)
			d, err := Detect(root, Choice{Name: "rke2"})
			if err != nil {
				t.Fatal(err)
			}
			got, err := d.Unit(root, c.cgroup)
			if got != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}
