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

// A runtime that is down has no socket, so that other things have to tell whose it is. What
// cannot be told then is not refused for good.
func TestDetectStopped(t *testing.T) {
	const (
		k3s, rke2            = "var/lib/rancher/k3s/agent/etc/containerd/", "var/lib/rancher/rke2/agent/etc/containerd/"
		containerd, crio     = "run/containerd/containerd.sock", "run/crio/crio.sock"
		unit, k3sUnit        = "usr/lib/systemd/system/containerd.service", "etc/systemd/system/k3s.service"
		unavailable, refused = "?", "!"
	)
	for name, c := range map[string]struct {
		files  []string
		choice Choice
		want   string
	}{
		"the kubelet's":                {nil, Choice{Endpoint: "unix:///run/containerd/containerd.sock"}, "containerd"},
		"the kubelet's, beside others": {[]string{containerd, unit}, Choice{Endpoint: "unix:///run/crio/crio.sock"}, "crio"},
		"the kubelet's, with k3s":      {[]string{k3s}, Choice{Endpoint: "/run/k3s/containerd/containerd.sock"}, "k3s"},
		"k3s or rke2":                  {[]string{k3s, rke2}, Choice{Endpoint: "/run/k3s/containerd/containerd.sock"}, unavailable + "of k3s and rke2"},
		"k3s or rke2, noted":           {[]string{k3s, rke2}, Choice{Endpoint: "/run/k3s/containerd/containerd.sock", Was: Metadata{Distribution: "rke2"}}, "rke2"},
		"k3s or rke2, by its unit":     {[]string{k3s, rke2, k3sUnit}, Choice{Endpoint: "/run/k3s/containerd/containerd.sock"}, "k3s"},
		"neither k3s nor rke2":         {nil, Choice{Endpoint: "/run/k3s/containerd/containerd.sock"}, refused + "whose configuration is seen here, but that of k3s and rke2"},
		"of another runtime":           {nil, Choice{Endpoint: "/run/crio/crio.sock", Runtime: "containerd"}, refused + "with containerd, but that of crio"},
		"of none":                      {[]string{unit}, Choice{Endpoint: "/run/other.sock"}, refused + "no socket of a known distribution; say"},
		"the only one":                 {nil, Choice{Runtime: "crio"}, "crio"},
		"the only one is another's":    {[]string{containerd}, Choice{Runtime: "crio"}, "crio"},
		"its unit":                     {[]string{unit}, Choice{}, "containerd"},
		"its unit, beside others":      {[]string{unit, k3sUnit}, Choice{}, "containerd"}, // there is no configuration of k3s
		"the folder of its socket":     {[]string{"run/k0s/", "etc/containerd/", "etc/crio/"}, Choice{}, "k0s"},
		"its configuration":            {[]string{"etc/containerd/"}, Choice{}, "containerd"},
		"two units":                    {[]string{unit, "etc/systemd/system/crio.service"}, Choice{}, unavailable + "of containerd and crio"},
		"two units, and one is meant":  {[]string{unit, "etc/systemd/system/crio.service"}, Choice{Runtime: "containerd"}, "containerd"},
		"two units, one noted":         {[]string{unit, "etc/systemd/system/crio.service"}, Choice{Was: Metadata{Distribution: "crio"}}, "crio"},
		"noted":                        {nil, Choice{Was: Metadata{Distribution: "microk8s"}}, "microk8s"},
		"noted, and another runs":      {[]string{containerd, unit}, Choice{Was: Metadata{Distribution: "crio"}}, "crio"},
		"noted, and not the kubelet's": {[]string{containerd}, Choice{Endpoint: "/run/containerd/containerd.sock", Was: Metadata{Distribution: "crio"}}, "containerd"},
		"noted, and not what is meant": {[]string{containerd}, Choice{Runtime: "containerd", Was: Metadata{Distribution: "crio"}}, "containerd"},
		"noted elsewhere":              {nil, Choice{Endpoint: "/run/site.sock", Was: Metadata{Distribution: "containerd", Socket: "/run/site.sock"}}, "containerd at /run/site.sock"},
		"noted elsewhere, and moved":   {nil, Choice{Endpoint: "/run/containerd/containerd.sock", Was: Metadata{Distribution: "containerd", Socket: "/run/site.sock"}}, "containerd at /run/containerd/containerd.sock"},
		"nothing":                      {nil, Choice{}, refused + "no socket of a known runtime"},
	} {
		root := t.TempDir()
		for _, f := range c.files {
			if strings.HasSuffix(f, "/") {
				f += "x"
			}
			touch(t, root, f)
		}
		got, err := Detect(root, c.choice)
		name += ": "
		says, forGood := strings.CutPrefix(c.want, refused)
		says, forNow := strings.CutPrefix(says, unavailable)
		switch want := (map[bool]payload.Reason{true: payload.UnsupportedNode, false: payload.RuntimeUnavailable})[forGood]; {
		case forGood || forNow:
			if fault.Of(err) != want || !strings.Contains(err.Error(), says) {
				t.Errorf("%s%+v %v", name, got, err)
			}
		case err != nil || got.Name != c.want && got.Name+" at "+got.Socket != c.want:
			t.Errorf("%s%+v %v", name, got, err)
		}
	}
}

// A link by which the kubelet names a socket leads there also while that is gone.
func TestDetectBehindADanglingLink(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/run/crio/crio.sock", filepath.Join(root, "run/cri.sock")); err != nil {
		t.Fatal(err)
	}
	if d, err := Detect(root, Choice{Endpoint: "unix:///run/cri.sock"}); err != nil || d.Name != "crio" {
		t.Errorf("%+v %v", d, err)
	}
}

// A pod sees those places of a node that were mounted for a distribution, and neither its
// units nor a kubelet that is a part of it. That does while the runtime is down.
func TestDetectStoppedInAPod(t *testing.T) {
	for _, d := range distributions {
		places, err := view.Want{Distribution: d.Name, BinaryPath: "/usr/bin", Systemd: true}.Places()
		if err != nil {
			t.Fatal(err)
		}
		root := t.TempDir()
		for _, p := range places {
			if p.Kind != view.File {
				err = os.MkdirAll(filepath.Join(root, p.Path), 0o755)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if d.Name == "microk8s" { // which is one folder with all that the snap has made
			touch(t, root, filepath.Join(filepath.Dir(d.Socket), "x"))
		}
		if got, err := Detect(root, Choice{Runtime: d.Runtime}); err != nil || got.Name != d.Name {
			t.Errorf("%s is taken for %q: %v", d.Name, got.Name, err)
		}
	}
}
