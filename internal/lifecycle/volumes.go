package lifecycle

import (
	"context"
	"fmt"
	"slices"

	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/stage"
)

var (
	volumesLeased  = failpoint.Register("create.volumes-leased")
	volumesMounted = failpoint.Register("create.volumes-mounted")
)

// useVolumes finds the images that mounts of the container show, holds their
// layers for it, and notes them in ctr. It returns what has to be mounted.
func (c *Core) useVolumes(ctx context.Context, ctr *pod.Container) ([]pod.VolumeRequest, error) {
	var out []pod.VolumeRequest
	for i, m := range ctr.Config.Mounts {
		if m.Image == nil {
			continue
		}
		img, err := c.Images.Use(ctx, m.Image.Image, ctr.ID)
		if err != nil {
			return nil, volumeError(i, err)
		}
		if ctr.Image.Volumes == nil {
			ctr.Image.Volumes = make([]string, len(ctr.Config.Mounts))
		}
		ctr.Image.Volumes[i] = img.ID
		out = append(out, pod.VolumeRequest{Container: ctr.ID, Index: i, Lower: img.Lower})
	}
	if out == nil {
		return nil, nil
	}
	return out, failpoint.Hit(volumesLeased)
}

// mountVolumes mounts them with the label of the container's root file system,
// and notes in ctr where its mounts find them. The record never has these paths.
func (c *Core) mountVolumes(ctx context.Context, r *pod.Record, ctr *pod.Container, volumes []pod.VolumeRequest, label string) error {
	if len(volumes) == 0 {
		return nil
	}
	stage.Enter(ctx, "mount image volumes")
	ctr.Config.Mounts = slices.Clone(ctr.Config.Mounts) // the record's own
	for _, v := range volumes {
		v.Label = label
		at, err := c.Roots.MountImage(ctx, r, v)
		if err != nil {
			return volumeError(v.Index, err)
		}
		ctr.Config.Mounts[v.Index].HostPath = at
	}
	return failpoint.Hit(volumesMounted)
}

func volumeError(index int, err error) error {
	return fmt.Errorf("%s: mounts[%d].image: %w", pod.ImageVolumeMountFailed, index, err)
}
