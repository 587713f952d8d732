package profile

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/fault"
)

// Choice is what is known of the distribution.
type Choice struct {
	// Name is taken for it, if it is not empty.
	Name string
	// Runtime leaves out those with another one, if it is not empty.
	Runtime string
	// Endpoint is what the kubelet uses, if that is known; it decides between two.
	Endpoint string
	// Was is what an installer has noted, which decides between those that remain: its
	// journal is about that one.
	Was Metadata
}

// Detect finds the distribution below root. It may be that of a runtime that is down and
// whose socket is gone: where that is why none can be told, the error has the reason
// RuntimeUnavailable.
func Detect(root string, c Choice) (Distribution, error) {
	switch at := slices.IndexFunc(distributions, func(d Distribution) bool { return d.Name == c.Name && c.runs(d) }); {
	case c.Runtime != "" && c.Runtime != "containerd" && c.Runtime != "crio":
		return Distribution{}, fault.New(payload.ConfigurationProblem, "there is no runtime %s; there are containerd and crio", c.Runtime)
	case at >= 0:
		return distributions[at].at(root), nil
	case c.Name != "":
		return Distribution{}, fault.New(payload.ConfigurationProblem, "there is no distribution %s with that runtime; there are %s", c.Name, strings.Join(Names(), ", "))
	}
	var fit, up []Distribution
	for _, d := range distributions {
		if d.Name == c.Was.Distribution {
			was := d
			was.Socket = cmp.Or(c.Was.Socket, d.Socket)
			if c.fits(root, was) {
				return was.at(root), nil
			}
		}
		if !c.fits(root, d) {
			continue
		}
		fit = append(fit, d)
		if exists(root, d.Socket) {
			up = append(up, d)
		}
	}
	switch len(up) {
	case 0:
		return c.stopped(root, fit)
	case 1:
		return up[0].at(root), nil
	}
	return Distribution{}, fault.New(payload.UnsupportedNode, "there are several runtimes, %s, and it cannot be seen which one the kubelet uses; say it by --distribution", named(up))
}

// runs says whether a distribution has the runtime that is meant.
func (c Choice) runs(d Distribution) bool { return c.Runtime == "" || c.Runtime == d.Runtime }

// fits says whether a distribution may be the node's, whether or not its runtime runs.
func (c Choice) fits(root string, d Distribution) bool {
	return c.runs(d) && d.configured(root) && (c.Endpoint == "" || same(root, c.Endpoint, d.Socket))
}

// stopped is the distribution of a runtime that does not run, of those that fit: the only
// one, or the only one of which something is here that stays while it is down.
func (c Choice) stopped(root string, fit []Distribution) (Distribution, error) {
	if len(fit) == 1 {
		return fit[0].at(root), nil
	}
	var here []Distribution
	for _, left := range []func(Distribution) bool{
		func(d Distribution) bool { return len(d.unitsHere(root)) > 0 },
		// A pod sees those alone that were mounted for it.
		func(d Distribution) bool { return exists(root, filepath.Dir(d.Socket)) },
		func(d Distribution) bool {
			return exists(root, filepath.Dir(cmp.Or(d.Containerd.Main, d.CRIO.Main)))
		},
	} {
		found := slices.DeleteFunc(slices.Clone(fit), func(d Distribution) bool { return !left(d) })
		if len(found) == 1 {
			return found[0].at(root), nil
		}
		if len(here) == 0 {
			here = found
		}
	}
	switch {
	case len(here) > 0:
		return Distribution{}, fault.New(payload.RuntimeUnavailable, "no socket of a known runtime is here, and it cannot be seen which one is down, of %s; start it, or say by --distribution which one it is", named(here))
	case c.Endpoint != "":
		return Distribution{}, fault.New(payload.UnsupportedNode, "the kubelet uses %s, which is no socket of a known distribution%s; say by --distribution, --cri-socket and --cri-config what it is", c.Endpoint, c.but(root))
	}
	return Distribution{}, fault.New(payload.UnsupportedNode, "no socket of a known runtime is here: neither of %s; say by --distribution, --cri-socket and --cri-config what it is", strings.Join(Names(), ", "))
}

// but says why the distributions do not fit that have the kubelet's socket.
func (c Choice) but(root string) string {
	has := slices.DeleteFunc(slices.Clone(distributions), func(d Distribution) bool { return !same(root, c.Endpoint, d.Socket) })
	switch {
	case len(has) == 0:
		return ""
	case !slices.ContainsFunc(has, c.runs):
		return fmt.Sprintf(" with %s, but that of %s", c.Runtime, named(has))
	}
	return fmt.Sprintf(" whose configuration is seen here, but that of %s", named(has))
}

func named(all []Distribution) string {
	var names []string
	for _, d := range all {
		names = append(names, d.Name)
	}
	return strings.Join(names, " and ")
}

// there says whether the distribution's socket and its configuration are there.
func (d Distribution) there(root string) bool { return exists(root, d.Socket) && d.configured(root) }

// configured says whether the distribution's configuration is there, where it is told from
// others by that.
func (d Distribution) configured(root string) bool {
	return d.Name != "k3s" && d.Name != "rke2" || exists(root, filepath.Dir(d.Containerd.Main))
}
