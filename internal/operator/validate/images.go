package validate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"

	"fairlead.run/api/v1alpha1"
)

// image is what is known of an operating system by its name.
type image struct {
	binaries string // where programs can be put
	only     v1alpha1.CRIName
	refused  string // why nothing can be installed there
}

// images are Gardener's and those of the installer's profiles. The folders are
// those of the seed for its three.
var images = map[string]image{
	"ubuntu":      {binaries: "/usr/bin"},
	"debian":      {binaries: "/usr/bin"},
	"rhel":        {binaries: "/usr/bin"},
	"gardenlinux": {binaries: "/usr/bin", only: v1alpha1.CRIContainerd},
	"coreos":      {binaries: "/var/bin", only: v1alpha1.CRIContainerd},
	"flatcar":     {binaries: "/var/bin", only: v1alpha1.CRIContainerd},
	"suse-chost":  {binaries: "/usr/sbin", only: v1alpha1.CRIContainerd},

	"bottlerocket": {refused: "its root is read-only and its containerd cannot be configured from outside"},
	"talos":        {refused: "its root is read-only, and runtimes come as its own system extensions"},
	"cos":          {refused: "its programs have to be on a verified, read-only root"},
}

// otherBinaries is for operating systems that are not in the table: /opt is
// writable nearly everywhere.
const otherBinaries = "/opt/bin"

// BinaryPath is where programs are put on an operating system.
func BinaryPath(name string) string {
	if known := images[name]; known.binaries != "" {
		return known.binaries
	}
	return otherBinaries
}

// supported are the images on which something can be installed below a CRI runtime; "" is
// any.
func supported(cri v1alpha1.CRIName) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(images)) {
		if only := images[name].only; images[name].refused == "" && (cri == "" || only == "" || only == cri) {
			out = append(out, name)
		}
	}
	return strings.Join(out, ", ")
}

// checkImage says whether runtimes can be installed below a group's CRI on its image.
func checkImage(g group, r *Result) {
	name, at := g.image, g.paths.image
	known, ok := images[name]
	switch {
	case !ok:
		r.warn("%s: nothing is known of the operating system %s, so that programs go to %s, and nodes may refuse them; those with a profile are %s", at, name, otherBinaries, supported(g.cri))
	case known.refused != "":
		r.add(field.Invalid(at, name, "no runtimes can be installed there: "+known.refused+"; "+g.images))
	case known.only != "" && g.cri != known.only:
		r.add(field.Invalid(g.paths.cri, g.cri, fmt.Sprintf("%s comes with %s only; set %s, or choose another image", name, known.only, known.only)))
	}
}

// Versions of Kubernetes below which something is missing.
var (
	withClasses  = version.MustParseGeneric("1.14.0") // RuntimeClass is on
	withOverhead = version.MustParseGeneric("1.16.0") // and has overhead and scheduling
)

// checkKubernetes wants a version that knows RuntimeClasses; no text is no claim.
func checkKubernetes(text string, at *field.Path, r *Result) {
	if text == "" {
		return
	}
	v, err := version.ParseGeneric(text)
	switch {
	case err != nil:
		r.add(field.Invalid(at, text, "is no version; give one as in 1.37.2"))
	case v.LessThan(withClasses):
		r.add(field.Invalid(at, text, "pods can choose a container runtime from Kubernetes 1.14 on; upgrade, or take containerRuntimes off"))
	case v.LessThan(withOverhead):
		r.warn("%s: Kubernetes %s has no overhead and no scheduling in RuntimeClasses, so that pods may land on nodes without the runtime; it has them from 1.16 on", at, text)
	}
}
