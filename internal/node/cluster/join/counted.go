package join

import (
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/node/priority"
	"fairlead.run/internal/node/status"
	"fairlead.run/internal/telemetry"
)

// podMetrics are how many pods the node is to run, in the names and words of a kubelet.
func (n *Node) podMetrics() func(io.Writer) error {
	r := &telemetry.Registry{}
	count := func(name, help string, pods func() []*corev1.Pod) {
		r.Gauge(name, help, []string{"static"}, func(tell func(float64, ...string)) {
			static, all := 0, pods()
			for _, p := range all {
				if priority.Static(p) {
					static++
				}
			}
			tell(float64(len(all)-static), "")
			tell(float64(static), "true")
		})
	}
	count("kubelet_desired_pods", "The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.", n.given.all)
	count("kubelet_active_pods", "The number of pods the kubelet considers active and which are being considered when admitting new pods. static is true if the pod is not from the apiserver.", n.active)
	r.Gauge("kubelet_mirror_pods", "The number of mirror pods the kubelet will try to create (one per admitted static pod)", nil,
		func(tell func(float64, ...string)) { tell(float64(n.cluster.Mirrors())) })
	return r.Write
}

// active are the pods that the node is to run and that have not ended.
func (n *Node) active() []*corev1.Pod {
	ended := map[types.UID]bool{} // the API server may not know yet
	for _, p := range n.agent.Pods() {
		ended[p.UID] = status.Terminal(p.Status.Phase)
	}
	return slices.DeleteFunc(n.given.all(), func(p *corev1.Pod) bool { return ended[p.UID] || status.Terminal(p.Status.Phase) })
}
