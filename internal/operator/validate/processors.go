package validate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/plugin"
)

// foundFlag is before the name of a flag of the processor, in a label that Node Feature
// Discovery sets to "true" where it has found the flag. Where it has not there is no label.
const foundFlag = "feature.node.kubernetes.io/cpu-cpuid."

// virtualFlags are those of Intel's and AMD's virtualisation. A virtual machine has them
// only if nested virtualisation is turned on for it.
var virtualFlags = []string{"VMX", "SVM"}

// Processors is what the labels of Node Feature Discovery tell of the nodes of a pool, if
// they have any. The zero value is of no nodes.
type Processors struct {
	can    bool
	cannot []string // nodes that it has looked at, and has not found the flags on
}

// Look adds a node, if it is in the pool or would be put there.
func (s *Processors) Look(p *v1alpha1.WorkerPool, n *corev1.Node) {
	if !belongs(p, n) || architecture(n) != "amd64" {
		return // processors of others are virtualised in other ways, which have no labels
	}
	looked := false
	for key, value := range n.Labels {
		flag, is := strings.CutPrefix(key, foundFlag)
		looked = looked || is
		if is && value == "true" && slices.Contains(virtualFlags, flag) {
			s.can = true
			return
		}
	}
	if looked {
		s.cannot = append(s.cannot, n.Name)
	}
}

// Virtual is what that says of the machines of the pool, which are alike. A label that is
// not there proves nothing: Node Feature Discovery can be told to leave some out.
func (s *Processors) Virtual() plugin.Virtual {
	switch {
	case s.can:
		return plugin.Virtual{Says: plugin.Yes}
	case len(s.cannot) > 0:
		slices.Sort(s.cannot)
		return plugin.Virtual{By: fmt.Sprintf("Node Feature Discovery has found neither %s on %s; turn nested virtualisation on for these machines if they have it", strings.Join(virtualFlags, " nor "), shortened(s.cannot))}
	}
	return plugin.Virtual{}
}
