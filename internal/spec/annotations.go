package spec

import (
	"context"
	"strings"
)

// The annotations by which sandboxing runtimes tell a pod's own process from
// its containers. Nobody else may set them.
const (
	annotationType      = "io.kubernetes.cri.container-type"
	annotationSandbox   = "io.kubernetes.cri.sandbox-id"
	annotationContainer = "io.kubernetes.cri.container-name"
)

// annotations passes on what the handler's configuration names, and what
// runtimes need to know of the pod. Everything else stays here: some runtimes
// let annotations change how they work.
func (b *build) annotations(context.Context) error {
	h := b.req.Handler
	out := allowed(b.pod().Annotations, h.PodAnnotations)
	for k, v := range allowed(b.container().Annotations, h.ContainerAnnotations) {
		out[k] = v
	}
	out[annotationType] = "container"
	out[annotationSandbox] = string(b.req.Record.ID)
	out[annotationContainer] = b.container().Metadata.Name
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
