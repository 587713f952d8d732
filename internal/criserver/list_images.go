package criserver

import (
	"context"
	"errors"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
)

// ListImages lists all images, or the one that the filter names. Annotations
// that are very long are left to ImageStatus.
func (s *Server) ListImages(ctx context.Context, r *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	resp := &cri.ListImagesResponse{}
	if name := r.GetFilter().GetImage().GetImage(); name != "" {
		img, err := s.cfg.Images.Find(ctx, name)
		switch {
		case err == nil:
			resp.Images = append(resp.Images, encodeListed(&img))
		case !errors.Is(err, errdefs.ErrNotFound):
			return nil, err
		}
		return resp, nil
	}
	list, err := s.cfg.Images.List(ctx)
	if err != nil {
		return nil, err
	}
	for i := range list {
		resp.Images = append(resp.Images, encodeListed(&list[i]))
	}
	return resp, nil
}
