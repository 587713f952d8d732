// Package refs reads the names of images: what completes one, what kind it is
// of, and which it is pinned by. It knows of no registry and no store.
package refs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"

	"fairlead.run/internal/errdefs"
)

// Normalize completes a name the way docker does: nginx means
// docker.io/library/nginx:latest. A name with tag and digest is the digest's:
// the tag is only a comment then.
func Normalize(ref string) (string, error) {
	named, err := Parse(ref)
	if err != nil {
		return "", err
	}
	return named.String(), nil
}

// Parse is Normalize for a caller that needs the parts.
func Parse(ref string) (reference.Named, error) {
	if ref == "" {
		return nil, fmt.Errorf("an image name is needed, as in docker.io/library/nginx:latest: %w", errdefs.ErrInvalidArgument)
	}
	if IsID(ref) {
		return nil, fmt.Errorf("%q is an image id, which no registry knows; give a name, as in docker.io/library/nginx:latest: %w",
			ref, errdefs.ErrInvalidArgument)
	}
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return nil, fmt.Errorf("image name %q: %w; a name is [HOST[:PORT]/]PATH[:TAG][@DIGEST] with host and path in lower case, as in registry.example.com:5000/team/app:1.2: %w",
			ref, err, errdefs.ErrInvalidArgument)
	}
	return named, nil
}

// NormalizePins completes the names of pinned images. Beginnings stay as they
// are: nobody can say what would complete them.
func NormalizePins(pins []string) ([]string, error) {
	out := make([]string, 0, len(pins))
	for _, p := range pins {
		if !strings.HasSuffix(p, "*") {
			full, err := Normalize(p)
			if err != nil {
				return nil, fmt.Errorf("pinned images: %w", err)
			}
			p = full
		}
		out = append(out, p)
	}
	return out, nil
}

// Pinned says whether one of the pins is about the name.
func Pinned(pins []string, name string) bool {
	return slices.ContainsFunc(pins, func(p string) bool {
		prefix, open := strings.CutSuffix(p, "*")
		return p == name || open && strings.HasPrefix(name, prefix)
	})
}

// IsID says whether the string is a full image id. The bare 64 digits count:
// the CRI's clients print ids that way.
func IsID(ref string) bool {
	hex := strings.TrimPrefix(ref, "sha256:")
	return digest.NewDigestFromEncoded(digest.SHA256, hex).Validate() == nil
}

// FullID completes a full image id, which may be the bare 64 digits.
func FullID(ref string) string {
	return "sha256:" + strings.TrimPrefix(ref, "sha256:")
}

// Kind is what a name says of the image.
type Kind int

// A name has a tag, or a digest, or is an image id.
const (
	Tag Kind = iota
	Digest
	ID
)

// KindOf returns the kind of a complete name.
func KindOf(name string) Kind {
	switch {
	case IsID(name):
		return ID
	case strings.Contains(name, "@"):
		return Digest
	}
	return Tag
}

// Repository is the name without tag and digest.
func Repository(name string) string {
	repo, _, _ := strings.Cut(name, "@")
	if i := strings.LastIndexByte(repo, ':'); i > strings.LastIndexByte(repo, '/') {
		return repo[:i]
	}
	return repo
}
