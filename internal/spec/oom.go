package spec

import (
	"context"
	"fmt"

	"fairlead.run/internal/spec/host"
)

// oomScore is the request's, or 0: without one in the spec, the container would
// have the monitor's, which the kernel is told to spare.
func (b *build) oomScore(context.Context) error {
	var want int64
	if r := b.req.Container.Limits(); r != nil {
		want = r.OOMScoreAdj
	}
	adj, warning, err := clampOOM(want, b.cfg.Host)
	if err != nil {
		return err
	}
	if warning != "" {
		b.warnings = append(b.warnings, warning)
	}
	b.spec.Process.OOMScoreAdj = &adj
	return nil
}

// clampOOM raises a score that this process may not give. The kernel lets go
// below one's own only who has CAP_SYS_RESOURCE, and a pod that starts with a
// worse score is better than none.
func clampOOM(want int64, h host.Host) (adj int, warning string, err error) {
	if want < -1000 || want > 1000 {
		return 0, "", invalid("linux.resources.oom_score_adj", "%d is outside of -1000 to 1000", want)
	}
	if own := int64(h.OOMScoreAdj); want < own && !h.SysResource {
		return h.OOMScoreAdj, fmt.Sprintf("linux.resources.oom_score_adj %d: without CAP_SYS_RESOURCE it cannot be below this process's own; using %d", want, own), nil
	}
	return int(want), "", nil
}
