package profile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.run/internal/installer/kubelet"
)

// A runtime that no kubelet reads is told of, however the socket is written.
func TestUnused(t *testing.T) {
	const (
		containerd = "/run/containerd/containerd.sock"
		k3s        = "/run/k3s/containerd/containerd.sock"
		k3sFile    = "var/lib/rancher/k3s/agent/etc/containerd/config.toml"
	)
	none := "no kubelet"
	for name, c := range map[string]struct {
		distribution, socket string
		endpoint             string
		files                []string
		links                map[string]string
		says                 string
	}{
		"the same":                      {distribution: "containerd", endpoint: containerd},
		"with a scheme":                 {distribution: "containerd", endpoint: "unix://" + containerd},
		"with a scheme alone":           {distribution: "containerd", endpoint: "unix:" + containerd},
		"of /var/run":                   {distribution: "containerd", endpoint: "unix:///var/run/containerd/containerd.sock"},
		"a socket of /var/run":          {distribution: "containerd", socket: "unix:///var" + containerd, endpoint: "unix://" + containerd},
		"written in another way":        {distribution: "containerd", endpoint: "unix:///run//containerd/./containerd.sock"},
		"a link":                        {distribution: "containerd", endpoint: "unix:///run/cri.sock", files: []string{"node" + containerd}, links: map[string]string{"node/run/cri.sock": containerd}},
		"a link above it":               {distribution: "containerd", endpoint: "/opt/run/containerd.sock", files: []string{"node" + containerd}, links: map[string]string{"node/opt/run": "/run/containerd"}},
		"not known":                     {distribution: "containerd", endpoint: ""},
		"no kubelet is seen":            {distribution: "containerd", endpoint: none},
		"another runtime":               {distribution: "containerd", endpoint: "unix:///run/crio/crio.sock", files: []string{"node" + containerd, "node/run/crio/crio.sock"}, says: "the kubelet uses unix:///run/crio/crio.sock, and what is worked on here is containerd at " + containerd},
		"one that is down":              {distribution: "containerd", endpoint: "/run/crio/crio.sock", files: []string{"node" + containerd}, says: "the kubelet uses /run/crio/crio.sock"},
		"another socket":                {distribution: "containerd", socket: "/run/docker/containerd.sock", endpoint: "unix://" + containerd, says: "containerd at /run/docker/containerd.sock"},
		"a link to another":             {distribution: "containerd", endpoint: "/run/cri.sock", files: []string{"node" + containerd, "node/run/other.sock"}, links: map[string]string{"node/run/cri.sock": "/run/other.sock"}, says: "/run/cri.sock"},
		"k0s, whose kubelet is seen":    {distribution: "k0s", endpoint: "unix:///run/k0s/containerd.sock"},
		"k0s, and another kubelet":      {distribution: "k0s", endpoint: "unix://" + containerd, says: "k0s at /run/k0s/containerd.sock"},
		"k3s":                           {distribution: "k3s", endpoint: none},
		"k3s, and some other kubelet":   {distribution: "k3s", endpoint: "unix://" + containerd},
		"k3s with a socket that is not": {distribution: "k3s", socket: "/run/other.sock", endpoint: none, says: "that in k3s, which uses " + k3s + " unless it was told another socket"},
		"containerd beside k3s":         {distribution: "containerd", endpoint: none, files: []string{"node" + k3s, "node/" + k3sFile}, says: "that in k3s, which uses " + k3s},
		"k3s by its socket alone":       {distribution: "containerd", socket: k3s, endpoint: none, files: []string{"node" + k3s, "node/" + k3sFile}},
		"k3s, and microk8s beside it":   {distribution: "k3s", endpoint: none, files: []string{"node/var/snap/microk8s/common/run/containerd.sock"}},
		"containerd, and k3s is gone":   {distribution: "containerd", endpoint: none, files: []string{"node/" + k3sFile}},
		"containerd beside microk8s":    {distribution: "containerd", endpoint: none, files: []string{"node/var/snap/microk8s/common/run/containerd.sock"}, says: "that in microk8s"},
		"a kubelet, and k3s beside it":  {distribution: "containerd", endpoint: containerd, files: []string{"node" + k3s, "node/" + k3sFile}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			root := filepath.Join(dir, "node")
			touch(t, dir, c.files...)
			for at, to := range c.links {
				at = filepath.Join(dir, at)
				if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(to, at); err != nil {
					t.Fatal(err)
				}
			}
			d, err := Detect(root, Choice{Name: c.distribution})
			if err == nil {
				d, err = d.With(Override{Socket: c.socket})
			}
			if err != nil {
				t.Fatal(err)
			}
			k := &kubelet.Kubelet{Root: root, Endpoint: c.endpoint}
			if c.endpoint == none {
				k = nil
			}
			got := d.Unused(root, k)
			if (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
				t.Errorf("%q", got)
			}
			if _, fix, ok := strings.Cut(got, "; "); got != "" && (!ok || !strings.Contains(fix, "--distribution") || !strings.HasSuffix(fix, "unix://"+d.Socket)) {
				t.Errorf("%q does not say what to do", got)
			}
		})
	}
}

// In a container the link by which the kubelet names the socket is not mounted.
func TestUsedBehindALink(t *testing.T) {
	const socket = "run/containerd/containerd.sock"
	root, own := t.TempDir(), t.TempDir()
	touch(t, root, socket)
	if err := os.MkdirAll(filepath.Join(own, "run/containerd"), 0o755); err != nil {
		t.Fatal(err)
	}
	err := os.Link(filepath.Join(root, socket), filepath.Join(own, socket)) // as a mount would show it
	if err == nil {
		err = os.Symlink("/"+socket, filepath.Join(own, "run/cri.sock"))
	}
	if err != nil {
		t.Fatal(err)
	}
	d, err := Detect(root, Choice{Name: "containerd"})
	if err != nil {
		t.Fatal(err)
	}
	k := kubelet.Kubelet{Root: own, Endpoint: "unix:///run/cri.sock"}
	if got := d.Unused(root, &k); got != "" {
		t.Error(got)
	}
	k.Root = root
	if got := d.Unused(root, &k); got == "" {
		t.Error("it is taken for the same")
	}
}
