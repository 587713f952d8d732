package load

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PullTime is the name of PullImage, which fetches and unpacks.
const PullTime = "PullImage"

// Pull pulls and unpacks an image, measured under that name, and keeps it.
func (t Target) Pull(ctx context.Context, name, image string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*patience)
	defer cancel()
	spec := &runtimeapi.ImageSpec{Image: image}
	err := t.take(name, func() error {
		_, err := t.System.Images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: spec})
		return err
	})
	if err != nil {
		return t.failed(err)
	}
	st, err := t.System.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: spec})
	if err == nil && st.GetImage() == nil {
		err = fmt.Errorf("the image that was pulled is not there")
	}
	if err != nil {
		return t.failed(fmt.Errorf("%s: %w", name, err))
	}
	return nil
}

// RemoveImage removes an image.
func (t Target) RemoveImage(ctx context.Context, image string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*patience)
	defer cancel()
	spec := &runtimeapi.ImageSpec{Image: image}
	if _, err := t.System.Images.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: spec}); err != nil {
		return t.failed(fmt.Errorf("remove the image %s: %w", image, err))
	}
	return nil
}
