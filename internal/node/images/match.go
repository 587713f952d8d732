package images

import (
	"fmt"
	"path"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
)

// PullPolicy is what was asked for, or the one that the image's tag implies.
func PullPolicy(image string, asked corev1.PullPolicy) corev1.PullPolicy {
	if asked != "" {
		return asked
	}
	name := image[strings.LastIndexByte(image, '/')+1:]
	if strings.Contains(name, "@") {
		return corev1.PullIfNotPresent
	}
	if _, tag, ok := strings.Cut(name, ":"); ok && tag != "latest" {
		return corev1.PullIfNotPresent
	}
	return corev1.PullAlways
}

// name is what a pod calls an image.
type name struct {
	asked      string // with the tag latest if it has neither tag nor digest
	full       string // "docker.io/library/nginx:1"
	repository string // "docker.io/library/nginx"
}

func parseName(image string) (name, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return name{}, fmt.Errorf("image name %q: %w", image, err)
	}
	n := name{asked: image, repository: named.Name()}
	if reference.IsNameOnly(named) {
		n.asked += ":latest"
	}
	n.full = reference.TagNameOnly(named).String()
	return n, nil
}

// FullName is the name of an image with its registry and a tag or digest, as runtimes
// list it; what is no name stays as it is.
func FullName(image string) string {
	n, err := parseName(image)
	if err != nil {
		return image
	}
	return n.full
}

// Match says whether a pattern means a repository. A pattern is a registry, as
// in matchImages of a credential provider and in the keys of a docker
// configuration: a host whose labels may be globs, a port that has to be the
// same, and the beginning of a path.
func Match(pattern, repository string) bool {
	p, r := splitPattern(pattern), splitPattern(repository)
	if p.port != r.port || len(p.labels) != len(r.labels) || !strings.HasPrefix(r.path, p.path) {
		return false
	}
	for i, label := range p.labels {
		if ok, err := path.Match(label, r.labels[i]); label != r.labels[i] && (err != nil || !ok) {
			return false
		}
	}
	return true
}

// CheckPattern says what is wrong with a pattern, if anything.
func CheckPattern(pattern string) error {
	p := splitPattern(pattern)
	for _, label := range p.labels {
		if _, err := path.Match(label, ""); err != nil || label == "" {
			return fmt.Errorf("pattern %q of images: the part %q of its host is neither a name nor a glob", pattern, label)
		}
	}
	if strings.ContainsAny(p.port+p.path, "*?[") {
		return fmt.Errorf("pattern %q of images: only the host may have globs, neither its port nor its path", pattern)
	}
	return nil
}

type split struct {
	labels []string // of the host
	port   string
	path   string // without the first slash
}

func splitPattern(s string) split {
	s = strings.TrimPrefix(strings.TrimPrefix(s, "https://"), "http://")
	host, path, _ := strings.Cut(s, "/")
	out := split{path: path}
	if colon := strings.LastIndexByte(host, ':'); colon > strings.LastIndexByte(host, ']') {
		host, out.port = host[:colon], host[colon+1:]
	}
	out.labels = strings.Split(host, ".")
	return out
}
