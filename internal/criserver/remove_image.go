package criserver

import (
	"context"
	"errors"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
)

// RemoveImage removes an image with all its names, whichever of them the
// request has. One that is not here is no error.
func (s *Server) RemoveImage(ctx context.Context, r *cri.RemoveImageRequest) (*cri.RemoveImageResponse, error) {
	var d decoder
	ref := d.required("image.image", r.GetImage().GetImage())
	if d.err != nil {
		return nil, d.err
	}
	img, err := s.cfg.Images.Find(ctx, ref)
	switch {
	case err == nil:
		ref = img.ID
	case !errors.Is(err, errdefs.ErrNotFound):
		return nil, err
	}
	// What was not found may still be there in pieces, which Remove clears.
	return &cri.RemoveImageResponse{}, s.cfg.Images.Remove(ctx, ref)
}
