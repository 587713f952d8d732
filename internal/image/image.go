package image

import (
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Image is one image of this node, with every name that it has here. It is a
// copy: changing it changes nothing in the store. Maps and slices in Config
// and Annotations are shared and must not be written to.
type Image struct {
	ID          string              // digest of the image's configuration, "sha256:..."
	RepoTags    []string            // "docker.io/library/nginx:1.29", sorted
	RepoDigests []string            // "docker.io/library/nginx@sha256:...", sorted
	Size        int64               // bytes on disk: blobs and unpacked layers, shared ones counted in full
	Config      ocispec.ImageConfig // user, entrypoint, cmd, env, working dir, stop signal, labels, volumes
	Platform    ocispec.Platform    // as the configuration says
	Created     time.Time           // zero if the configuration does not say
	Annotations map[string]string   // of the manifest
	Pinned      bool                // the kubelet's image collection leaves it alone
	ChainID     string              // identity of the stack of layers; empty if there is none
	Layers      int                 // how many layers
	dirs        []string            // where they are, topmost first
}

// clone is a copy whose name lists the caller may keep and sort.
func (i *Image) clone() Image {
	c := *i
	c.RepoTags = append([]string(nil), i.RepoTags...)
	c.RepoDigests = append([]string(nil), i.RepoDigests...)
	return c
}

// Ref is how a container's status names its image: by a digest that a registry
// knows if there is one, else by id.
func (i *Image) Ref() string {
	if len(i.RepoDigests) > 0 {
		return i.RepoDigests[0]
	}
	return i.ID
}
