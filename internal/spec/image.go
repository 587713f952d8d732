package spec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"

	"github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/inroot"
	"fairlead.run/internal/pod"
)

// imageVolume is a mount that shows the content of an image, or of a folder in
// it. Somebody has mounted the image on HostPath, read-only, with the container's
// label and the pod's owners. Nothing is mounted below, and nothing ever will be,
// so that read-only is so all the way down, and nothing has to be propagated.
func (b *build) imageVolume(ctx context.Context, field string, m pod.Mount) (specs.Mount, error) {
	fail := func(err error) (specs.Mount, error) {
		return specs.Mount{}, fmt.Errorf("%s: %w", pod.ImageVolumeMountFailed, err)
	}
	if m.Propagation == pod.PropagationBidirectional {
		return fail(invalid(field+".propagation", "is Bidirectional, and nothing can be mounted in an image"))
	}
	options, err := optionsOf(field, m, "rprivate", "ro")
	if err != nil {
		return fail(err)
	}
	source, err := hostpath.Look(ctx, m.HostPath, func() (string, error) { return imageSource(field, m) })
	if err != nil {
		return fail(err)
	}
	return specs.Mount{Destination: path.Clean(m.ContainerPath), Type: "bind", Source: source, Options: options}, nil
}

// imageSource is the folder of the image. Links in the image stay in it.
func imageSource(field string, m pod.Mount) (string, error) {
	at, err := inroot.OpenPath(m.HostPath, m.ImageSubPath)
	if errors.Is(err, errdefs.ErrNotFound) {
		return "", invalid(field+".image_sub_path", "%q is not in image %s", m.ImageSubPath, m.Image.Image)
	}
	if err != nil {
		return "", fmt.Errorf("%s.image_sub_path: %w", field, err)
	}
	defer func() { _ = at.Close() }()
	info, err := at.Stat()
	if err != nil {
		return "", fmt.Errorf("%s.image_sub_path: %w", field, err)
	}
	if !info.IsDir() {
		return "", invalid(field+".image_sub_path", "%q is no folder in image %s; only folders can be mounted", m.ImageSubPath, m.Image.Image)
	}
	return os.Readlink(inroot.Proc(at))
}
