package daemon

import (
	"context"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"fairlead.run/internal/criserver"
	"fairlead.run/internal/image"
	"fairlead.run/internal/lifecycle"
	"fairlead.run/internal/pod"
)

// coreImages is the image store in the terms of the core.
type coreImages struct{ store *image.Store }

func (i coreImages) Use(ctx context.Context, ref string, by pod.ContainerID) (lifecycle.Image, error) {
	layers, err := i.store.Use(ctx, ref, string(by))
	if err != nil {
		return lifecycle.Image{}, err
	}
	return lifecycle.Image{
		ContainerImage: layers.Image.ContainerImage(),
		Config:         imageConfig(&layers.Image.Config),
		Lower:          layers.Dirs,
	}, nil
}

func (i coreImages) Release(ctx context.Context, by pod.ContainerID) error {
	return i.store.Release(ctx, string(by))
}

func (i coreImages) SyncUses(ctx context.Context, live map[pod.ContainerID][]string) error {
	uses := make(map[string][]string, len(live))
	for by, ids := range live {
		uses[string(by)] = ids
	}
	return i.store.SyncUses(ctx, uses)
}

func imageConfig(c *ocispec.ImageConfig) pod.ImageConfig {
	out := pod.ImageConfig{
		User: c.User, Entrypoint: c.Entrypoint, Cmd: c.Cmd, Env: c.Env,
		WorkingDir: c.WorkingDir, StopSignal: c.StopSignal,
	}
	for v := range c.Volumes {
		out.Volumes = append(out.Volumes, v)
	}
	slices.Sort(out.Volumes)
	return out
}

// criImages is the image store in the terms of the CRI server, but for its pulls.
type criImages struct{ store *image.Store }

func (i criImages) List(ctx context.Context) ([]criserver.Image, error) {
	found, err := i.store.List(ctx, image.Filter{})
	if err != nil {
		return nil, err
	}
	out := make([]criserver.Image, len(found))
	for n := range found {
		out[n] = criImage(&found[n])
	}
	return out, nil
}

func (i criImages) Find(ctx context.Context, ref string) (criserver.Image, error) {
	img, err := i.store.Get(ctx, ref)
	if err != nil {
		return criserver.Image{}, err
	}
	return criImage(&img), nil
}

func (i criImages) Remove(ctx context.Context, ref string) error { return i.store.Remove(ctx, ref) }

func (i criImages) Usage(ctx context.Context) (criserver.ImageUsage, error) {
	u, err := i.store.Usage(ctx)
	return criserver.ImageUsage{Path: u.Path, Bytes: u.Bytes, Inodes: u.Inodes}, err
}

func criImage(img *image.Image) criserver.Image {
	return criserver.Image{
		ID: img.ID, RepoTags: img.RepoTags, RepoDigests: img.RepoDigests, Size: img.Size,
		User: img.Config.User, Pinned: img.Pinned, Annotations: img.Annotations,
		Info: map[string]any{
			"chainID": img.ChainID,
			"imageSpec": map[string]any{
				"created": img.Created, "platform": img.Platform, "config": img.Config,
			},
		},
	}
}
