package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/volume/files"
)

// inside are the mounts of a container that lie in one of its others, by their paths in it.
// Those that lie in such a one in turn are not among them.
func inside(all []corev1.VolumeMount, outer int) map[int]string {
	out := map[int]string{}
	for i := range all {
		rel, in := below(all[outer], all[i])
		for j := range all {
			_, deeper := below(all[outer], all[j])
			_, hidden := below(all[j], all[i])
			in = in && !(deeper && hidden)
		}
		if in {
			out[i] = rel
		}
	}
	return out
}

// below is the path from a mount to one in it.
func below(dir, path corev1.VolumeMount) (string, bool) {
	rel, err := filepath.Rel(podspec.MountPath(dir), podspec.MountPath(path))
	return rel, err == nil && rel != "." && filepath.IsLocal(rel)
}

// places are the names in a volume at which containers of the pod have something else
// mounted.
func (s *Set) places(volume string) map[string]bool {
	spec, out := &s.spec.Pod.Spec, map[string]bool{}
	add := func(all []corev1.VolumeMount) {
		for i := range all {
			if all[i].Name != volume {
				continue
			}
			for _, rel := range inside(all, i) {
				first, _, _ := strings.Cut(rel, "/")
				out[first] = true
			}
		}
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			add(list[i].VolumeMounts)
		}
	}
	for i := range spec.EphemeralContainers {
		add(spec.EphemeralContainers[i].VolumeMounts)
	}
	return out
}

// makePlaces makes what other volumes are to be mounted on in volumes whose files come from
// objects. Those are read-only in a container, where a runtime could not make it.
func (s *Set) makePlaces(ctx context.Context, ct *corev1.Container, mounts []*runtimeapi.Mount) error {
	for i, m := range ct.VolumeMounts {
		volume := s.volumes[m.Name].path
		if !hasContent(s.volume(m.Name)) || mounts[i].GetHostPath() != volume {
			continue
		}
		for j, rel := range inside(ct.VolumeMounts, i) {
			dir, err := isFolder(ctx, mounts[j].GetHostPath())
			if err == nil {
				err = files.MakePlace(volume, rel, dir)
			}
			if err != nil {
				return fmt.Errorf("make %s in volume %s, to mount volume %s on: %w", rel, m.Name, ct.VolumeMounts[j].Name, err)
			}
		}
	}
	return nil
}

// isFolder says what is to be mounted. What is missing the runtime makes a folder; images have
// no path.
func isFolder(ctx context.Context, path string) (bool, error) {
	if path == "" {
		return true, nil
	}
	info, err := hostpath.Look(ctx, path, func() (fs.FileInfo, error) { return os.Stat(path) })
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return err == nil && info.IsDir(), err
}
