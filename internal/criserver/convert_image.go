package criserver

import (
	"strconv"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func encodeImage(i *Image) *cri.Image {
	out := &cri.Image{
		Id:          i.ID,
		RepoTags:    i.RepoTags,
		RepoDigests: i.RepoDigests,
		Size:        uint64(max(i.Size, 1)), // "must be > 0"
		Pinned:      i.Pinned,
		Spec:        &cri.ImageSpec{Image: i.ID, Annotations: i.Annotations},
	}
	// "uid:gid" and "name:group": the CRI wants to know about the user only.
	user, _, _ := strings.Cut(i.User, ":")
	if uid, err := strconv.ParseInt(user, 10, 64); err == nil {
		out.Uid = &cri.Int64Value{Value: uid}
	} else {
		out.Username = user
	}
	return out
}

func decodeAuth(a *cri.AuthConfig) *ImageAuth {
	if a == nil {
		return nil
	}
	out := &ImageAuth{
		Username:      a.GetUsername(),
		Password:      a.GetPassword(),
		Auth:          a.GetAuth(),
		ServerAddress: a.GetServerAddress(),
		IdentityToken: a.GetIdentityToken(),
		RegistryToken: a.GetRegistryToken(),
	}
	if *out == (ImageAuth{}) || *out == (ImageAuth{ServerAddress: out.ServerAddress}) {
		return nil // a name of a registry is no credential
	}
	return out
}
