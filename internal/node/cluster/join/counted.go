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
	count("kubelet_desired_pods", "Pods that are to run here; static are those that no API server has sent.", n.given.all)
	count("kubelet_active_pods", "Pods that have not ended, and have their room here; static are those that no API server has sent.", n.active)
	r.Gauge("kubelet_mirror_pods", "Mirror pods, by which the API server shows static ones.", nil,
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
