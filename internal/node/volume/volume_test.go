package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/podspec"
)

type objects struct{}

func (objects) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	if name != "m" {
		return nil, nil
	}
	return &corev1.ConfigMap{Data: map[string]string{"a": "A", "b": "B"}, BinaryData: map[string][]byte{"c": {0}}}, nil
}

func (objects) Secret(context.Context, string, string) (*corev1.Secret, error) {
	return &corev1.Secret{Data: map[string][]byte{"p": []byte("secret")}}, nil
}

func prepare(c *podspec.Context, d Dirs) (*Set, error) {
	return Prepare(context.Background(), c, d, Around{})
}

func ptr[T any](v T) *T { return &v }

func podContext(volumes ...corev1.Volume) *podspec.Context {
	return &podspec.Context{
		Pod:     &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Spec: corev1.PodSpec{Volumes: volumes}},
		Objects: objects{},
	}
}

func testDirs(t *testing.T) Dirs {
	dir := t.TempDir()
	d := Dirs{Disk: filepath.Join(dir, "disk"), Memory: filepath.Join(dir, "memory")}
	t.Cleanup(func() {
		if err := Remove(context.Background(), d, nil); err != nil {
			t.Error(err)
		}
	})
	return d
}

func needRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount and to change owners")
	}
}

func source(s corev1.VolumeSource) corev1.Volume { return corev1.Volume{Name: "v", VolumeSource: s} }

func TestFiles(t *testing.T) {
	needRoot(t)
	c := podContext(source(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: ptr[int32](0o400),
		Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "m"},
				Items:                []corev1.KeyToPath{{Key: "a", Path: "deep/er/a", Mode: ptr[int32](0o755)}, {Key: "c", Path: "c"}},
			}},
			{Secret: &corev1.SecretProjection{}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}},
		},
	}}))
	c.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr[int64](2000)}
	s, err := prepare(c, testDirs(t))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		text string
		mode os.FileMode
	}{"deep/er/a": {"A", 0o755}, "c": {"\x00", 0o440}, "p": {"secret", 0o440}, "name": {"web", 0o440}} {
		file := filepath.Join(s.volumes["v"].path, path)
		text, err := os.ReadFile(file)
		info, statErr := os.Stat(file)
		if err != nil || statErr != nil {
			t.Errorf("%s: %v %v", path, err, statErr)
			continue
		}
		var st unix.Stat_t
		_ = unix.Stat(file, &st)
		if string(text) != want.text || info.Mode() != want.mode || st.Gid != 2000 {
			t.Errorf("%s: %q %v gid %d", path, text, info.Mode(), st.Gid)
		}
	}
	mounts, err := s.Mounts(t.Context(), &corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}})
	if err != nil || !mounts[0].Readonly {
		t.Errorf("a volume of objects can be written: %v %v", mounts, err)
	}
}

func TestMissingObject(t *testing.T) {
	v := corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}}}
	d := testDirs(t)
	if _, err := prepare(podContext(source(v)), d); err == nil || !strings.Contains(err.Error(), "volume v: ConfigMap none is missing") {
		t.Error(err)
	}
	v.ConfigMap.Optional = ptr(true)
	if _, err := prepare(podContext(source(v)), d); err != nil {
		t.Error(err)
	}
}

func TestEmptyDir(t *testing.T) {
	needRoot(t)
	d := testDirs(t)
	c := podContext(
		source(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
		corev1.Volume{Name: "mem", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: "Memory", SizeLimit: ptr(resource.MustParse("1Mi"))}}},
	)
	s, err := prepare(c, d)
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"v": 0o777 | os.ModeDir, "mem": 0o777 | os.ModeDir | os.ModeSticky} {
		if info, err := os.Stat(s.volumes[name].path); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
	if err := os.WriteFile(filepath.Join(s.volumes["mem"].path, "f"), make([]byte, 2<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("the size limit does not hold: %v", err)
	}
	if err := Remove(t.Context(), d, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(d.Disk); !os.IsNotExist(err) {
		t.Error("the folder is still there")
	}
}

func TestHostPathTypes(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		kind corev1.HostPathType
		path string
		ok   bool
	}{
		{"", "/nowhere", true},
		{"Directory", dir, true},
		{"Directory", file, false},
		{"Directory", dir + "/none", false},
		{"DirectoryOrCreate", dir + "/new/one", true},
		{"DirectoryOrCreate", file, false},
		{"File", file, true},
		{"File", dir, false},
		{"FileOrCreate", dir + "/newfile", true},
		{"FileOrCreate", dir, false},
		{"Socket", file, false},
		{"CharDevice", "/dev/null", true},
		{"BlockDevice", "/dev/null", false},
	}
	for _, tt := range tests {
		if err := checkHostPath(t.Context(), &corev1.HostPathVolumeSource{Path: tt.path, Type: &tt.kind}); (err == nil) != tt.ok {
			t.Errorf("%s %s: %v", tt.kind, tt.path, err)
		}
	}
}

func TestSubPath(t *testing.T) {
	needRoot(t)
	host := t.TempDir()
	for _, dir := range []string{"in/side", "data"} {
		if err := os.MkdirAll(filepath.Join(host, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	outside := t.TempDir()
	keep := filepath.Join(outside, "keep")
	for path, text := range map[string]string{keep: "keep", filepath.Join(host, "data", "file"): "here"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"out": outside, "up": "../../../../../../../../etc", "abs": "/etc", "good": "data", "in/proc": "/proc/self/root"} {
		if err := os.Symlink(to, filepath.Join(host, link)); err != nil {
			t.Fatal(err)
		}
	}
	d := testDirs(t)
	s, err := prepare(podContext(source(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: host}})), d)
	if err != nil {
		t.Fatal(err)
	}
	mount := func(sub string) ([]*runtimeapi.Mount, error) {
		return s.Mounts(t.Context(), &corev1.Container{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v", SubPath: sub}}})
	}
	for _, sub := range []string{"out", "out/keep", "up", "abs", "in/proc", "in/proc/etc", "out/new"} {
		if m, err := mount(sub); err == nil {
			t.Errorf("subPath %s leads out and is mounted: %v", sub, m)
		}
	}
	for sub, file := range map[string]string{"data": "file", "good": "file", "data/file": "", "new/one": ""} {
		m, err := mount(sub)
		if err != nil {
			t.Errorf("subPath %s: %v", sub, err)
			continue
		}
		if _, err := os.Stat(filepath.Join(m[0].HostPath, file)); err != nil {
			t.Errorf("subPath %s: %v", sub, err)
		}
	}
	// A link that is put in place later does not change what is mounted.
	m, err := mount("data")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(host, "data"), filepath.Join(host, "old")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(host, "data")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(m[0].HostPath, "file")); err != nil {
		t.Errorf("the mount followed a link: %v", err)
	}
	if err := Remove(t.Context(), d, nil); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{keep, filepath.Join(host, "old", "file")} {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("removing volumes touched the host: %v", err)
		}
	}
}

// A folder that a subPath makes has the mode of its volume: what is in the volume of a
// pod that several users share is each one's own.
func TestNewSubPathIsAsOpen(t *testing.T) {
	needRoot(t)
	host := t.TempDir()
	if err := os.Chmod(host, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	d := testDirs(t)
	s, err := prepare(podContext(source(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: host}})), d)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Mounts(t.Context(), &corev1.Container{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v", SubPath: "a/b"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"a", "a/b"} {
		if info, err := os.Stat(filepath.Join(host, dir)); err != nil || info.Mode() != 0o777|os.ModeSticky|os.ModeDir {
			t.Errorf("%s: %v, %v", dir, info.Mode(), err)
		}
	}
	if err := Remove(t.Context(), d, nil); err != nil {
		t.Fatal(err)
	}
}

func TestRecursiveReadOnly(t *testing.T) {
	c := podContext(source(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}))
	ct := func(m corev1.RecursiveReadOnlyMode) *corev1.Container {
		return &corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v", ReadOnly: true, RecursiveReadOnly: &m}}}
	}
	s, err := prepare(c, testDirs(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Mounts(t.Context(), ct("Enabled")); err == nil {
		t.Error("a handler that cannot do it is not refused")
	}
	if m, err := s.Mounts(t.Context(), ct("IfPossible")); err != nil || m[0].RecursiveReadOnly {
		t.Errorf("%v %v", m, err)
	}
	c.Features = &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true}
	if m, err := s.Mounts(t.Context(), ct("Enabled")); err != nil || !m[0].RecursiveReadOnly {
		t.Errorf("%v %v", m, err)
	}
}

// An image is the runtime's to mount: by the name that it gave, never writable,
// and with the subPath left to it.
func TestImage(t *testing.T) {
	c := podContext(source(corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "data:1"}}))
	c.Pulled = func(image string) string { return "sha256:of-" + image }
	c.Features = &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true}
	d := testDirs(t)
	s, err := prepare(c, d)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(d.Memory); !os.IsNotExist(err) {
		t.Errorf("something was made for it: %v", err)
	}
	got, err := s.Mounts(t.Context(), &corev1.Container{VolumeMounts: []corev1.VolumeMount{
		{Name: "v", MountPath: "/a/"},
		{Name: "v", MountPath: "/b", SubPath: "x/y", ReadOnly: true, RecursiveReadOnly: ptr(corev1.RecursiveReadOnlyEnabled)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	image := &runtimeapi.ImageSpec{Image: "sha256:of-data:1", UserSpecifiedImage: "data:1"}
	want := []*runtimeapi.Mount{
		{ContainerPath: "/a", Readonly: true, Image: image},
		{ContainerPath: "/b", Readonly: true, Image: image, ImageSubPath: "x/y", RecursiveReadOnly: true},
	}
	for i := range want {
		if !proto.Equal(got[i], want[i]) {
			t.Errorf("%v, want %v", got[i], want[i])
		}
	}
}
