package profile

import (
	"cmp"
	"fmt"
	"os"
	"slices"

	"fairlead.run/internal/inroot"
	"fairlead.run/internal/installer/kubelet"
)

// Unused says for people why no pod of the node below root gets what is installed for the
// distribution's runtime, and behind a semicolon what helps: the node's kubelet uses
// another socket. It is "" where it uses this one, or is not known to use any. The kubelet
// is nil where no process of that name is seen.
func (d Distribution) Unused(root string, k *kubelet.Kubelet) string {
	with := d.embedded(root)
	switch {
	case k != nil && !d.KubeletInside:
		if k.Endpoint == "" || d.reads(root, *k) {
			return ""
		}
		return d.unused(fmt.Sprintf("the kubelet uses %s", k.Endpoint))
	case len(with) == 0, slices.ContainsFunc(with, func(o Distribution) bool { return same(root, o.Socket, d.Socket) }):
		return ""
	}
	return d.unused(fmt.Sprintf("the kubelet of this node is that in %s, which uses %s unless it was told another socket", with[0].Name, with[0].Socket))
}

func (d Distribution) unused(what string) string {
	return fmt.Sprintf("%s, and what is worked on here is %s at %s, whose handlers no pod of this node gets; say by --distribution and --cri-socket which runtime the kubelet uses, or have it use unix://%s", what, d.Name, d.Socket, d.Socket)
}

// embedded are the distributions of the node that have the kubelet in their own process.
func (d Distribution) embedded(root string) []Distribution {
	return slices.DeleteFunc(slices.Clone(distributions), func(o Distribution) bool {
		return !o.KubeletInside || o.Name != d.Name && (d.KubeletInside || !o.there(root))
	})
}

// reads says whether a kubelet uses the distribution's socket. A link to that may be where
// the kubelet sees it alone.
func (d Distribution) reads(root string, k kubelet.Kubelet) bool {
	if same(root, k.Endpoint, d.Socket) {
		return true
	}
	a, err := os.Stat(inroot.Join(cmp.Or(k.Root, root), plain(k.Endpoint)))
	if err != nil {
		return false
	}
	b, err := os.Stat(inroot.Join(root, plain(d.Socket)))
	return err == nil && os.SameFile(a, b)
}
