package image

import (
	"maps"
	"slices"

	"fairlead.run/internal/pod"
)

// ContainerImage is how a container's record names this image.
func (i *Image) ContainerImage() pod.ContainerImage {
	out := pod.ContainerImage{ID: i.ID, Ref: i.Ref(), Name: i.Ref()}
	if len(i.RepoTags) > 0 {
		out.Name = i.RepoTags[0]
	}
	return out
}

// PodConfig is what the image says about its process, in the domain's terms.
func (i *Image) PodConfig() pod.ImageConfig {
	c := i.Config
	return pod.ImageConfig{
		User:       c.User,
		Entrypoint: c.Entrypoint,
		Cmd:        c.Cmd,
		Env:        c.Env,
		WorkingDir: c.WorkingDir,
		StopSignal: c.StopSignal,
		Volumes:    slices.Sorted(maps.Keys(c.Volumes)),
	}
}
