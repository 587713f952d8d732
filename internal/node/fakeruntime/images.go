package fakeruntime

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Images are those of a Runtime. An image is there once it was pulled, and its id is its
// name.
type Images struct {
	runtimeapi.ImageServiceClient
	f *Runtime

	present   map[string]bool
	passwords map[string]string
	last      *runtimeapi.PullImageRequest
}

// Protect has pulls of an image fail without that password.
func (i *Images) Protect(image, password string) {
	i.f.mu.Lock()
	defer i.f.mu.Unlock()
	i.passwords[image] = password
}

// LastPull is the last request for a pull; nil if there was none.
func (i *Images) LastPull() *runtimeapi.PullImageRequest {
	i.f.mu.Lock()
	defer i.f.mu.Unlock()
	return i.last
}

// ImageStatus implements runtimeapi.ImageServiceClient.
func (i *Images) ImageStatus(_ context.Context, r *runtimeapi.ImageStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ImageStatusResponse, error) {
	i.f.mu.Lock()
	defer i.f.mu.Unlock()
	if !i.present[r.Image.Image] {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return &runtimeapi.ImageStatusResponse{Image: image(r.Image.Image)}, nil
}

func image(name string) *runtimeapi.Image {
	return &runtimeapi.Image{Id: name, RepoTags: []string{name}, Size: 1 << 20}
}

// ListImages implements runtimeapi.ImageServiceClient.
func (i *Images) ListImages(context.Context, *runtimeapi.ListImagesRequest, ...grpc.CallOption) (*runtimeapi.ListImagesResponse, error) {
	i.f.mu.Lock()
	defer i.f.mu.Unlock()
	out := &runtimeapi.ListImagesResponse{}
	for name := range i.present {
		out.Images = append(out.Images, image(name))
	}
	return out, nil
}

// PullImage implements runtimeapi.ImageServiceClient.
func (i *Images) PullImage(ctx context.Context, r *runtimeapi.PullImageRequest, _ ...grpc.CallOption) (*runtimeapi.PullImageResponse, error) {
	name := r.Image.Image
	err := i.f.begin(ctx, "pull "+name)
	defer i.f.mu.Unlock()
	if want := i.passwords[name]; want != r.Auth.GetPassword() && want != "" {
		err = errors.New("denied")
	}
	if err != nil {
		return nil, err
	}
	i.present[name], i.last = true, r
	return &runtimeapi.PullImageResponse{ImageRef: name}, nil
}

// ImageFsInfo implements runtimeapi.ImageServiceClient: it has no file system to tell of.
func (*Images) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest, ...grpc.CallOption) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{}, nil
}

// RemoveImage implements runtimeapi.ImageServiceClient.
func (i *Images) RemoveImage(ctx context.Context, r *runtimeapi.RemoveImageRequest, _ ...grpc.CallOption) (*runtimeapi.RemoveImageResponse, error) {
	err := i.f.begin(ctx, "remove image "+r.Image.Image)
	defer i.f.mu.Unlock()
	if err == nil {
		delete(i.present, r.Image.Image)
	}
	return &runtimeapi.RemoveImageResponse{}, err
}
