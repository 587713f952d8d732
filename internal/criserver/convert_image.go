package criserver

import (
	"strconv"
	"strings"
	"unicode"

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

// maxListed is how many bytes of annotations an image may have in a list. All
// images go into one message, and one alone could fill it with what its author
// wrote into it.
const maxListed = 4 << 10

// encodeListed is an image as one of a list.
func encodeListed(i *Image) *cri.Image {
	out := encodeImage(i)
	size := 0
	for k, v := range i.Annotations {
		size += len(k) + len(v)
	}
	if size > maxListed {
		out.Spec.Annotations = nil
	}
	return out
}

func (d *decoder) auth(field string, a *cri.AuthConfig) *ImageAuth {
	if a == nil {
		return nil
	}
	if strings.ContainsFunc(a.GetRegistryToken(), unicode.IsControl) {
		// What it is must not get into a log.
		d.fail(field+".registry_token", "has characters that cannot be sent in a header, such as the end of a line")
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
