package volume

import (
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/podspec"
)

// file is one file of a volume.
type file struct {
	data []byte
	mode os.FileMode
}

const defaultMode = 0o644

// writer gathers the files of one volume; later sources replace earlier ones.
type writer struct {
	files map[string]file
	mode  os.FileMode
}

func (s *Set) files(v *corev1.Volume) (map[string]file, error) {
	w := &writer{files: map[string]file{}, mode: defaultMode}
	setMode := func(m *int32) {
		if m != nil {
			w.mode = os.FileMode(*m)
		}
	}
	namespace := s.spec.Pod.Namespace
	switch {
	case v.ConfigMap != nil:
		setMode(v.ConfigMap.DefaultMode)
		return w.files, w.configMap(s.spec.Objects.ConfigMap(namespace, v.ConfigMap.Name), v.ConfigMap.Items, v.ConfigMap.Optional)
	case v.Secret != nil:
		setMode(v.Secret.DefaultMode)
		return w.files, w.secret(s.spec.Objects.Secret(namespace, v.Secret.SecretName), v.Secret.Items, v.Secret.Optional)
	case v.DownwardAPI != nil:
		setMode(v.DownwardAPI.DefaultMode)
		return w.files, w.downward(s.spec, v.DownwardAPI.Items)
	case v.Projected != nil:
		setMode(v.Projected.DefaultMode)
		for _, source := range v.Projected.Sources {
			if err := w.project(s.spec, source); err != nil {
				return nil, err
			}
		}
		return w.files, nil
	}
	return nil, fmt.Errorf("its kind is not known: %w", errdefs.ErrUnimplemented)
}

func (w *writer) project(c *podspec.Context, p corev1.VolumeProjection) error {
	if m := p.ConfigMap; m != nil {
		return w.configMap(c.Objects.ConfigMap(c.Pod.Namespace, m.Name), m.Items, m.Optional)
	}
	if m := p.Secret; m != nil {
		return w.secret(c.Objects.Secret(c.Pod.Namespace, m.Name), m.Items, m.Optional)
	}
	if p.DownwardAPI != nil {
		return w.downward(c, p.DownwardAPI.Items)
	}
	return nil
}

func (w *writer) configMap(cm *corev1.ConfigMap, items []corev1.KeyToPath, optional *bool) error {
	all := map[string][]byte{}
	if cm != nil {
		for k, v := range cm.Data {
			all[k] = []byte(v)
		}
		for k, v := range cm.BinaryData {
			all[k] = v
		}
	}
	return w.add(all, items, cm == nil, optional)
}

func (w *writer) secret(s *corev1.Secret, items []corev1.KeyToPath, optional *bool) error {
	var all map[string][]byte
	if s != nil {
		all = s.Data
	}
	return w.add(all, items, s == nil, optional)
}

func (w *writer) add(all map[string][]byte, items []corev1.KeyToPath, missing bool, optional *bool) error {
	may := optional != nil && *optional
	if missing && !may {
		return fmt.Errorf("its object is missing: %w", errdefs.ErrNotFound)
	}
	if len(items) == 0 {
		for k, v := range all {
			w.files[k] = file{v, w.mode}
		}
	}
	for _, item := range items {
		v, ok := all[item.Key]
		if !ok && !may {
			return fmt.Errorf("its object has no key %q: %w", item.Key, errdefs.ErrNotFound)
		}
		if ok {
			w.files[filepath.Clean(item.Path)] = file{v, w.modeOf(item.Mode)}
		}
	}
	return nil
}

func (w *writer) modeOf(m *int32) os.FileMode {
	if m != nil {
		return os.FileMode(*m)
	}
	return w.mode
}

func (w *writer) downward(c *podspec.Context, items []corev1.DownwardAPIVolumeFile) error {
	for _, item := range items {
		var value string
		var err error
		if item.FieldRef != nil {
			value, err = podspec.FieldValue(c, item.FieldRef.FieldPath)
		} else {
			value, err = podspec.ResourceValue(c, &corev1.Container{}, item.ResourceFieldRef)
		}
		if err != nil {
			return fmt.Errorf("item %s: %w", item.Path, err)
		}
		w.files[filepath.Clean(item.Path)] = file{[]byte(value), w.modeOf(item.Mode)}
	}
	return nil
}

// writeFiles writes a new folder. Paths were checked when the manifest was
// read; os.Root holds them below the folder in any case.
func writeFiles(dir string, files map[string]file, group *int64) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for name, f := range files {
		if err := writeFile(root, name, f, group); err != nil {
			return err
		}
	}
	if group != nil {
		if err := os.Lchown(dir, -1, int(*group)); err != nil {
			return err
		}
		return os.Chmod(dir, 0o750|os.ModeSetgid|0o005)
	}
	return nil
}

func writeFile(root *os.Root, name string, f file, group *int64) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if err := root.WriteFile(name, f.data, 0o600); err != nil {
		return err
	}
	mode := f.mode
	if group != nil {
		mode |= 0o440
		if err := root.Lchown(name, -1, int(*group)); err != nil {
			return err
		}
	}
	return root.Chmod(name, mode)
}
