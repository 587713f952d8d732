package volume

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A volume may be mounted inside of a ConfigMap's, which is read-only for whoever could make
// the place for it. The place stays as it is while files come and go: a container has a mount
// there, which would go with it.
func TestPlacesInVolumesOfObjects(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	put(t, file, "")
	st := &store{maps: map[string]*corev1.ConfigMap{"m": {Data: map[string]string{"a": "1"}}}}
	c := podContext(configMap("m"),
		corev1.Volume{Name: "dir", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		corev1.Volume{Name: "file", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: file}}},
		corev1.Volume{Name: "image", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "i"}}},
	)
	c.Objects, c.Pulled = st, func(image string) string { return image }
	c.Pod.Spec.Containers = []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{
		{Name: "dir", MountPath: "/etc/v/conf.d/deep"},
		{Name: "v", MountPath: "/etc/v/"},
		{Name: "dir", MountPath: "/etc/v/conf.d"},
		{Name: "dir", MountPath: "/etc/v/conf.d-2/x"},
		{Name: "file", MountPath: "/etc/v/one/file"},
		{Name: "image", MountPath: "etc/v/image"}, // Kubernetes takes that, and means the same
		{Name: "dir", MountPath: "/etc/vv"},
		{Name: "dir", MountPath: "/etc/v/a"},
		{Name: "dir", MountPath: "/etc/v/..data"},
	}}}
	s, err := prepare(c, testDirs(t))
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := s.Mounts(t.Context(), &c.Pod.Spec.Containers[0])
	if err != nil {
		t.Fatal(err)
	}
	if at := mounts[5].GetContainerPath(); at != "/etc/v/image" {
		t.Errorf("it is mounted on %s", at)
	}
	dir := s.volumes["v"].path
	places := map[string]os.FileInfo{}
	for name, mode := range map[string]os.FileMode{"conf.d": os.ModeDir | 0o755, "conf.d-2/x": os.ModeDir | 0o755, "one/file": 0o644, "image": os.ModeDir | 0o755} {
		if places[name], err = os.Lstat(filepath.Join(dir, name)); err != nil || places[name].Mode() != mode {
			t.Fatalf("%s: %v %v", name, places[name], err)
		}
	}
	if got := read(t, s, "a"); got != "1" {
		t.Errorf("a file at which something is mounted is %q", got)
	}
	for _, other := range []string{"conf.d/deep", "v", "c"} {
		if _, err := os.Lstat(filepath.Join(dir, other)); !os.IsNotExist(err) {
			t.Errorf("%s: %v", other, err)
		}
	}
	st.maps["m"] = &corev1.ConfigMap{Data: map[string]string{"b": "2", "conf.d": "hidden", "image": "hidden"}}
	update(t, s, true)
	update(t, s, false)
	if got := read(t, s, "b"); got != "2" {
		t.Errorf("b is %q", got)
	}
	for name, was := range places {
		if now, err := os.Lstat(filepath.Join(dir, name)); err != nil || !os.SameFile(was, now) {
			t.Errorf("%s was made anew: %v", name, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "a")); !os.IsNotExist(err) {
		t.Errorf("a file that is gone is shown: %v", err)
	}
}
