package inventory

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
)

// Image is an image of the machine.
type Image struct {
	ID      string   `json:"id"`
	Tags    []string `json:"tags,omitempty"`
	Digests []string `json:"digests,omitempty"`
	Size    uint64   `json:"size"`
	Pinned  bool     `json:"pinned"`
}

// Images lists the images by name.
func Images(ctx context.Context, client runtimeapi.ImageServiceClient) ([]Image, error) {
	resp, err := client.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	list := make([]Image, 0, len(resp.GetImages()))
	for _, i := range resp.GetImages() {
		list = append(list, Image{ID: i.GetId(), Tags: i.GetRepoTags(), Digests: i.GetRepoDigests(), Size: i.GetSize(), Pinned: i.GetPinned()})
	}
	slices.SortFunc(list, func(x, y Image) int {
		return strings.Compare(strings.Join(x.Tags, ",")+x.ID, strings.Join(y.Tags, ",")+y.ID)
	})
	return list, nil
}

// NoImage is the error about an image that is not there.
func NoImage(image string) error {
	return fmt.Errorf("there is no image %s on this machine; fairlead image ls lists those that are: %w", image, errdefs.ErrNotFound)
}

// RemoveImage removes an image by name or id. It looks first, because the
// CRI's call does not say that there was nothing to remove.
func RemoveImage(ctx context.Context, client runtimeapi.ImageServiceClient, image string) error {
	spec := &runtimeapi.ImageSpec{Image: image}
	found, err := client.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: spec})
	if err == nil && found.GetImage() == nil {
		return NoImage(image)
	}
	if err == nil {
		_, err = client.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: spec})
	}
	if err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("remove image %s: %w", image, err)
	}
	return nil
}
