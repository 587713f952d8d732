package criserver

import (
	"context"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/pod"
)

// PullImage fetches an image. The answer is its id, as everywhere in the CRI.
func (s *Server) PullImage(ctx context.Context, r *cri.PullImageRequest) (*cri.PullImageResponse, error) {
	var d decoder
	p := ImagePull{
		Ref:     d.required("image.image", r.GetImage().GetImage()),
		Auth:    d.auth("auth", r.GetAuth()),
		Handler: r.GetImage().GetRuntimeHandler(),
	}
	if m := r.GetSandboxConfig().GetMetadata(); m != nil {
		p.Pod = pod.Metadata{Name: m.GetName(), UID: m.GetUid(), Namespace: m.GetNamespace(), Attempt: m.GetAttempt()}
	}
	s.checkHandler(&d, "image.runtime_handler", p.Handler)
	if d.err != nil {
		return nil, d.err
	}
	id, err := s.cfg.Images.Pull(ctx, p)
	if err != nil {
		return nil, err
	}
	return &cri.PullImageResponse{ImageRef: id}, nil
}

// checkHandler refuses a handler that this node has never heard of. One that
// does not work is no reason not to pull.
func (s *Server) checkHandler(d *decoder, field, name string) {
	if name == "" {
		return
	}
	var known []string
	for _, h := range s.cfg.Handlers.List() {
		if h.Name == name {
			return
		}
		known = append(known, h.Name)
	}
	d.fail(field, "is %q; the runtime handlers of this node are %s", name, strings.Join(known, ", "))
}
