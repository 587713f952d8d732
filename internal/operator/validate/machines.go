package validate

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/osimage"
)

// Machines are what nodes have to be to get a runtime. The zero value is any.
type Machines struct {
	Architectures []string
	Image         string // name of the machine image
}

// MachinesOf are those of a pool, or those that a payload has programs for where there is
// no pool.
func MachinesOf(pool *v1alpha1.WorkerPool, p *payload.RuntimePayload) Machines {
	m := Machines{Architectures: Architectures(pool, p)}
	if pool != nil {
		m.Image = pool.Spec.MachineImage.Name
	}
	return m
}

// Fit says that a node is such a machine. A node that has not told yet is waited for.
func (m Machines) Fit(n *corev1.Node) bool {
	return Fits(n, m.Architectures) && !m.otherImage(n)
}

// otherImage says that a node has another operating system.
func (m Machines) otherImage(n *corev1.Node) bool {
	return kernel(n) != linux || osimage.Differs(m.Image, osimage.OfText(n.Status.NodeInfo.OSImage))
}

// linux is what all payloads are for.
const linux = "linux"

// kernel is that of a node, by the words of Kubernetes; one that has not told yet is taken
// to have Linux.
func kernel(n *corev1.Node) string {
	return cmp.Or(n.Labels[corev1.LabelOSStable], n.Status.NodeInfo.OperatingSystem, linux)
}

// Misfit is what to say of a node that does not fit, and what to do about it; or "".
func (m Machines) Misfit(n *corev1.Node) (says, do string) {
	switch {
	case !Fits(n, m.Architectures):
		return fmt.Sprintf("%s (%s and not %s)", n.Name, architecture(n), strings.Join(m.Architectures, " or ")), ForMisfits
	case m.otherImage(n):
		return fmt.Sprintf("%s (%s and not %s)", n.Name, cmp.Or(n.Status.NodeInfo.OSImage, kernel(n)), cmp.Or(m.Image, linux)), ForOtherImages
	}
	return "", ""
}

// ForOtherImages is what to do about nodes with another operating system.
const ForOtherImages = "give them a pool of their own with their machineImage, and tell the pools apart by a label; or correct machineImage if it is the pool that is wrong"

// OtherVersion is what to say of a node that has another version of its pool's operating
// system; or "".
func OtherVersion(n *corev1.Node, image v1alpha1.MachineImage) string {
	text := n.Status.NodeInfo.OSImage
	if osimage.OfText(text) == "" || !osimage.VersionDiffers(image.Version, text) {
		return ""
	}
	return fmt.Sprintf("%s (%s)", n.Name, text)
}
