package criserver

import (
	"context"
	"errors"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
)

// ImageStatus describes one image. One that is not here is an empty answer and
// no error: that is how callers find out whether to pull.
func (s *Server) ImageStatus(ctx context.Context, r *cri.ImageStatusRequest) (*cri.ImageStatusResponse, error) {
	var d decoder
	name := d.required("image.image", r.GetImage().GetImage())
	if d.err != nil {
		return nil, d.err
	}
	img, err := s.cfg.Images.Find(ctx, name)
	if errors.Is(err, errdefs.ErrNotFound) {
		return &cri.ImageStatusResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	resp := &cri.ImageStatusResponse{Image: encodeImage(&img)}
	if r.GetVerbose() {
		resp.Info, err = encodeInfo(map[string]any{"info": img.Info})
	}
	return resp, err
}
