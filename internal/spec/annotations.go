package spec

import (
	"context"
	"path/filepath"
	"strings"

	"fairlead.run/internal/spec/origin"
)

// criuConfig names the file from which runc's criu takes options when a checkpoint
// is made: the handler writes it then. Otherwise there is none.
const criuConfig = "org.criu.config"

// annotations passes on what the handler's configuration names, and says whose
// the container is, which nobody else may. Everything else stays here: some
// runtimes let annotations change how they work.
func (b *build) annotations(context.Context) error {
	h := b.req.Handler
	out := allowed(b.pod().Annotations, h.PodAnnotations)
	for k, v := range allowed(b.container().Annotations, h.ContainerAnnotations) {
		out[k] = v
	}
	origin.OfContainer(out, b.req.Record, b.req.Container)
	out[criuConfig] = filepath.Join(b.cfg.StateDir, "containers", string(b.req.Container.ID), "criu.conf")
	b.spec.Annotations = out
	return nil
}

// allowed is the annotations that a pattern names: whole, or as a beginning and
// "*".
func allowed(annotations map[string]string, patterns []string) map[string]string {
	out := map[string]string{}
	for k, v := range annotations {
		for _, p := range patterns {
			prefix, open := strings.CutSuffix(p, "*")
			if k == p || open && strings.HasPrefix(k, prefix) {
				out[k] = v
			}
		}
	}
	return out
}
