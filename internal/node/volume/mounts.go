package volume

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/podspec"
)

// Mounts are the mounts of one container that is about to be made.
func (s *Set) Mounts(ctx context.Context, ct *corev1.Container) ([]*runtimeapi.Mount, error) {
	var out []*runtimeapi.Mount
	for i, m := range ct.VolumeMounts {
		sub, err := s.subPath(ctx, ct, m)
		if err == nil {
			m.SubPath = sub
			var mount *runtimeapi.Mount
			if mount, err = s.mount(ctx, place{ct.Name, i}, m); err == nil {
				out = append(out, mount)
				err = s.recursive(m, mount)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("mount volume %s in container %s: %w", m.Name, ct.Name, err)
		}
	}
	if err := s.makePlaces(ctx, ct, out); err != nil {
		return nil, fmt.Errorf("mounts of container %s: %w", ct.Name, err)
	}
	return out, nil
}

// place says which mount of which container something is for.
type place struct {
	container string
	index     int
}

// subPath is the part of a volume that a mount shows.
func (s *Set) subPath(ctx context.Context, ct *corev1.Container, m corev1.VolumeMount) (string, error) {
	sub := m.SubPath
	if m.SubPathExpr != "" {
		for _, name := range names(m.SubPathExpr) {
			if v, err := s.expand(ctx, ct, "$("+name+")"); err != nil || v == "$("+name+")" {
				return "", fmt.Errorf("subPathExpr %q: the container has no variable %s: %w", m.SubPathExpr, name, errdefs.ErrInvalidArgument)
			}
		}
		var err error
		if sub, err = s.expand(ctx, ct, m.SubPathExpr); err != nil {
			return "", fmt.Errorf("subPathExpr %q: %w", m.SubPathExpr, err)
		}
	}
	if filepath.IsAbs(sub) || slices.Contains(strings.Split(sub, "/"), "..") {
		return "", fmt.Errorf("subPath %q is not a relative path without ..: %w", sub, errdefs.ErrInvalidArgument)
	}
	return sub, nil
}

func (s *Set) expand(ctx context.Context, ct *corev1.Container, text string) (string, error) {
	list, err := podspec.Expand(ctx, s.spec, ct, []string{text})
	if err != nil {
		return "", err
	}
	return list[0], nil
}

// names are the variables that a text refers to as $(NAME); $$ is one $.
func names(text string) []string {
	var out []string
	for {
		i := strings.IndexByte(text, '$')
		if i < 0 || i+1 == len(text) {
			return out
		}
		rest := text[i+2:]
		if text[i+1] == '(' {
			if end := strings.IndexByte(rest, ')'); end >= 0 {
				out, rest = append(out, rest[:end]), rest[end+1:]
			}
		}
		text = rest
	}
}

// mount is one mount. A subPath on the host is bound to a folder of the pod's own
// first, because a container that shares the volume could swap the path for a link
// between now and the runtime's own look at it. One in an image is the runtime's to
// find.
func (s *Set) mount(ctx context.Context, at place, m corev1.VolumeMount) (*runtimeapi.Mount, error) {
	path := podspec.MountPath(m)
	v, is := s.volume(m.Name), s.volumes[m.Name]
	if v == nil || is == nil {
		return nil, fmt.Errorf("the pod has no such volume: %w", errdefs.ErrInvalidArgument)
	}
	if v.Image != nil {
		spec := &runtimeapi.ImageSpec{Image: s.spec.Pulled(v.Image.Reference), UserSpecifiedImage: v.Image.Reference}
		return &runtimeapi.Mount{ContainerPath: path, Readonly: true, Image: spec, ImageSubPath: m.SubPath}, nil
	}
	host := is.path
	if m.SubPath != "" {
		host = filepath.Join(subPaths(s.dirs), at.container, strconv.Itoa(at.index))
		b := binding{volume: is.path, sub: m.SubPath, target: host}
		b.shared = m.MountPropagation != nil && *m.MountPropagation == corev1.MountPropagationBidirectional
		err := os.MkdirAll(filepath.Dir(host), 0o700)
		if err == nil {
			err = look(ctx, is.path, func() error { return b.bind(ctx) })
		}
		if err != nil {
			return nil, fmt.Errorf("subPath %s: %w", m.SubPath, err)
		}
	}
	return &runtimeapi.Mount{
		ContainerPath: path, HostPath: host,
		Readonly: m.ReadOnly || is.readOnly, SelinuxRelabel: is.own,
	}, nil
}

// subPaths is where parts of volumes are mounted for containers.
func subPaths(d Dirs) string { return filepath.Join(d.Memory, "subpaths") }

func (s *Set) recursive(m corev1.VolumeMount, out *runtimeapi.Mount) error {
	if p := m.MountPropagation; p != nil {
		switch *p {
		case corev1.MountPropagationHostToContainer:
			out.Propagation = runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
		case corev1.MountPropagationBidirectional:
			out.Propagation = runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
		}
	}
	if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == corev1.RecursiveReadOnlyDisabled {
		return nil
	}
	can := s.spec.Features.GetRecursiveReadOnlyMounts()
	if *m.RecursiveReadOnly == corev1.RecursiveReadOnlyEnabled && !can {
		return fmt.Errorf("recursiveReadOnly is Enabled and the pod's handler cannot do it: %w", errdefs.ErrUnimplemented)
	}
	out.RecursiveReadOnly = can
	return nil
}
