package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// DockerFiles are the paths of docker configurations of the node, by which every pod on it may
// pull. The first that is there and can be read is the one, as for a kubelet.
type DockerFiles []string

// legacyName is that of files which have registries only, without "auths" around them.
const legacyName = ".dockercfg"

// DockerFilesOf has the paths that a kubelet looks for, but for its working directory: below
// its persistent folder, the home of its user (empty for none), and the root.
func DockerFilesOf(folder, home, root string) DockerFiles {
	var newer, older DockerFiles
	for _, dir := range []string{folder, home, root} {
		if dir == "" {
			continue
		}
		older = append(older, filepath.Join(dir, legacyName))
		if dir != folder {
			dir = filepath.Join(dir, ".docker")
		}
		newer = append(newer, filepath.Join(dir, "config.json"))
	}
	return slices.Concat(newer, older)
}

// Lookup implements Credentials. The files are read each time, so that what was changed in
// them counts at once.
func (d DockerFiles) Lookup(_ context.Context, image string, _ *corev1.Pod) ([]Credential, error) {
	var errs []error
	for _, path := range d {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var auths map[string]dockerAuth
		if err == nil {
			auths, err = decodeAuths(data, filepath.Base(path) == legacyName)
		}
		if err != nil { // the next one may do
			errs = append(errs, fmt.Errorf("%s of the node: %w", path, err))
			continue
		}
		var k Keyring
		for registry, a := range auths {
			auth, err := a.auth()
			if err != nil {
				errs = append(errs, fmt.Errorf("docker configuration %s of the node, registry %s: %w", path, registry, err))
			} else if auth != (Auth{}) {
				k.Add(registry, Credential{Auth: auth})
			}
		}
		return k.Lookup(image), errors.Join(errs...)
	}
	return nil, errors.Join(errs...)
}

// Several are asked one after the other, and their answers tried in that order.
type Several []Credentials

// Lookup implements Credentials.
func (s Several) Lookup(ctx context.Context, image string, pod *corev1.Pod) ([]Credential, error) {
	var out []Credential
	var errs []error
	for _, c := range s {
		found, err := c.Lookup(ctx, image, pod)
		out, errs = append(out, found...), append(errs, err)
	}
	return out, errors.Join(errs...)
}
