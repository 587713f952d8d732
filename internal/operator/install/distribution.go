package install

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/api/v1alpha1"
)

// microk8s is the label by which MicroK8s tells its nodes; the others tell in the
// version of their kubelet.
const microk8s = "microk8s.io/cluster"

// Distribution is how the CRI runtime of nodes is set up, by a name of the installer's.
// Nodes that differ are an error: one DaemonSet has one set of mounts.
func Distribution(cri v1alpha1.CRIName, nodes []corev1.Node) (string, error) {
	if cri == v1alpha1.CRICRIO {
		return string(cri), nil
	}
	found, of := "", ""
	for i := range nodes {
		d := distributionOf(&nodes[i])
		if found != "" && found != d {
			return "", fmt.Errorf("node %s has %s and node %s has %s, whose files are in different places; make a pool of each", of, found, nodes[i].Name, d)
		}
		found, of = d, nodes[i].Name
	}
	if found == "" {
		return string(v1alpha1.CRIContainerd), nil
	}
	return found, nil
}

func distributionOf(n *corev1.Node) string {
	_, build, _ := strings.Cut(n.Status.NodeInfo.KubeletVersion, "+")
	for _, name := range []string{"k3s", "rke2", "k0s"} {
		if strings.HasPrefix(build, name) {
			return name
		}
	}
	if _, ok := n.Labels[microk8s]; ok {
		return "microk8s"
	}
	return string(v1alpha1.CRIContainerd)
}
