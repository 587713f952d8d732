package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"fairlead.run/internal/node/podspec"
)

func emptyDirs() *podspec.Context {
	return podContext(
		source(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
		corev1.Volume{Name: "mem", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: "Memory"}}},
	)
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// An agent that is started again finds what containers have written, and what they
// did to the folder itself. After a reboot only what was in memory is gone.
func TestEmptyDirsAreAdopted(t *testing.T) {
	needRoot(t)
	d := testDirs(t)
	c := emptyDirs()
	c.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr[int64](2000)}
	s, err := prepare(c, d)
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]uint32{"v": 0o2777, "mem": 0o3777} {
		dir := s.volumes[name].path
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil || st.Gid != 2000 || st.Mode&0o7777 != mode {
			t.Errorf("%s: %v gid %d mode %o", name, err, st.Gid, st.Mode&0o7777)
		}
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err != nil || fs.Flags&(unix.ST_NODEV|unix.ST_NOSUID|unix.ST_NOEXEC) != 0 {
			t.Errorf("%s: %v, flags %x: what is built in it cannot be used", name, err, fs.Flags)
		}
		put(t, filepath.Join(dir, "f"), name)
		if err := errors.Join(os.Chown(dir, 33, 33), os.Chmod(dir, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := prepare(c, d); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"v", "mem"} {
		var st unix.Stat_t
		if err := unix.Stat(s.volumes[name].path, &st); err != nil || st.Uid != 33 || st.Gid != 33 || st.Mode&0o7777 != 0o700 {
			t.Errorf("%s: %v gid %d mode %o", name, err, st.Gid, st.Mode&0o7777)
		}
		if data, err := os.ReadFile(filepath.Join(s.volumes[name].path, "f")); string(data) != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(mountsBelow(t, d.Memory)); n != 1 {
		t.Errorf("%d mounts", n)
	}
	// A reboot.
	if err := errors.Join(unmountBelow(d.Memory), os.RemoveAll(d.Memory)); err != nil {
		t.Fatal(err)
	}
	if s, err = prepare(c, d); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(s.volumes["v"].path, "f")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(s.volumes["mem"].path, "f")); !os.IsNotExist(err) {
		t.Errorf("memory outlived a reboot: %v", err)
	}
}

// One that was killed between making the folder and opening it leaves what is begun.
func TestEmptyDirThatWasBegun(t *testing.T) {
	d := testDirs(t)
	if err := os.MkdirAll(filepath.Join(d.Disk, "volumes", ".v.new"), 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := prepare(podContext(source(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})), d)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(s.volumes["v"].path); err != nil || info.Mode().Perm() != 0o777 {
		t.Error(info, err)
	}
}

func mountsBelow(t *testing.T, dir string) []*mountinfo.Info {
	t.Helper()
	list, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestMemorySize(t *testing.T) {
	limit := func(m string) corev1.Container {
		if m == "" {
			return corev1.Container{}
		}
		return corev1.Container{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse(m)}}}
	}
	for _, tt := range []struct {
		name, node, allocatable, size string
		containers                    []string
		want                          string
	}{
		{"nothing is known", "0", "", "", []string{""}, "0"},
		{"the node", "8Gi", "", "", []string{""}, "8Gi"},
		{"what pods may have of it", "8Gi", "7Gi", "", []string{""}, "7Gi"},
		{"all containers are bound", "8Gi", "7Gi", "", []string{"1Gi", "2Gi"}, "3Gi"},
		{"one is not", "8Gi", "7Gi", "", []string{"1Gi", ""}, "7Gi"},
		{"more than the node", "8Gi", "7Gi", "", []string{"9Gi"}, "7Gi"},
		{"the volume says less", "8Gi", "7Gi", "10Mi", []string{"1Gi"}, "10Mi"},
		{"the volume says more", "8Gi", "7Gi", "2Gi", []string{"1Gi"}, "1Gi"},
	} {
		node := resource.MustParse(tt.node)
		s := &Set{spec: podContext(), refused: map[string]error{}}
		s.spec.Node.MemoryBytes = node.Value()
		if tt.allocatable != "" {
			s.around.Allocatable = corev1.ResourceList{"memory": resource.MustParse(tt.allocatable)}
		}
		for _, m := range tt.containers {
			s.spec.Pod.Spec.Containers = append(s.spec.Pod.Spec.Containers, limit(m))
		}
		var size *resource.Quantity
		if tt.size != "" {
			size = ptr(resource.MustParse(tt.size))
		}
		want := resource.MustParse(tt.want)
		if got := s.memorySize(size); got != want.Value() {
			t.Errorf("%s: %d, want %d", tt.name, got, want.Value())
		}
	}
}

func TestHugePages(t *testing.T) {
	needRoot(t)
	kinds, _ := os.ReadFile("/proc/filesystems")
	if _, err := os.Stat("/sys/kernel/mm/hugepages/hugepages-2048kB"); err != nil || !strings.Contains(string(kinds), "hugetlbfs") {
		t.Skip("the kernel has no huge pages of 2 MiB")
	}
	c := podContext(source(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: "HugePages"}}))
	pages := corev1.ResourceList{"hugepages-2Mi": resource.MustParse("6Mi")}
	c.Pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: pages, Requests: pages}}}
	d := testDirs(t)
	s, err := prepare(c, d)
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(s.volumes["v"].path, &st); err != nil || st.Type != unix.HUGETLBFS_MAGIC || st.Bsize != 2<<20 || st.Blocks != 3 {
		t.Errorf("%v: %+v", err, st)
	}
	c.Pod.Spec.Containers = nil
	if _, err := prepare(c, testDirs(t)); err == nil || !strings.Contains(err.Error(), "needs a container that asks for hugepages-SIZE") {
		t.Error(err)
	}
	for _, medium := range []corev1.StorageMedium{"HugePages-x", "Disk"} {
		c.Pod.Spec.Volumes[0].EmptyDir.Medium = medium
		if _, err := prepare(c, testDirs(t)); err == nil || !strings.Contains(err.Error(), string(medium)) {
			t.Error(err)
		}
	}
}

func owner(t *testing.T, path string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %o", st.Gid, st.Mode&0o7777)
}

// ending remembers the context of a look for a claim.
type ending struct {
	claims
	ctx *context.Context
}

func (e ending) Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	*e.ctx = ctx
	return e.claims.Claim(ctx, namespace, name)
}

// TestGroupAfterMounts is given when the time for mounting has ended. Of a pod that runs nothing
// fails for it.
func TestGroupAfterMounts(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	put(t, filepath.Join(dir, "f"), "")
	c := claimPod(false)
	c.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr[int64](2000)}
	var mounting context.Context
	around := Around{Limit: time.Hour, Claims: ending{bound(corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: dir}}), &mounting}}
	if _, err := Prepare(t.Context(), c, testDirs(t), around); err != nil {
		t.Fatal(err)
	}
	if got := owner(t, filepath.Join(dir, "f")); got != "2000 660" || mounting.Err() == nil {
		t.Errorf("%s, %v", got, mounting.Err())
	}
	around.Runs = true
	c.Pod.Spec.SecurityContext.FSGroup = ptr[int64](3000)
	if _, err := Prepare(t.Context(), c, testDirs(t), around); err != nil || owner(t, filepath.Join(dir, "f")) != "3000 660" {
		t.Errorf("%s, %v", owner(t, filepath.Join(dir, "f")), err)
	}
}

// A server may not let root give files away, as NFS that squashes it. The pod has the volume
// all the same, and is told.
func TestGroupThatIsRefused(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	put(t, filepath.Join(dir, "f"), "")
	if err := errors.Join(unix.Mount(dir, dir, "", unix.MS_BIND, ""), unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	c := claimPod(false)
	c.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr[int64](2000)}
	s, err := Prepare(t.Context(), c, testDirs(t), Around{Claims: bound(corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: dir}})})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Refused(); !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), "2 files of "+dir+" could not be given to group 2000 (fsGroup) with its rights, the first of them: change the group of f") {
		t.Error(err)
	}
}

// usage measures all parts of a set that are there.
func usage(ctx context.Context, s *Set) ([]Usage, error) {
	var out []Usage
	var errs []error
	for _, p := range s.Parts() {
		u, err := p.Measure(ctx)
		if errs = append(errs, err); !u.At.IsZero() {
			out = append(out, u)
		}
	}
	return out, errors.Join(errs...)
}

func TestUsage(t *testing.T) {
	needRoot(t)
	d := testDirs(t)
	c := emptyDirs()
	c.Pod.Spec.Volumes[0].EmptyDir.SizeLimit = ptr(resource.MustParse("1Gi"))
	outside := t.TempDir()
	c.Pod.Spec.Volumes = append(c.Pod.Spec.Volumes,
		corev1.Volume{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: outside}}},
		corev1.Volume{Name: "map", VolumeSource: configMap("m").VolumeSource})
	s, err := prepare(c, d)
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(outside, "large"), strings.Repeat("x", 4<<20))
	dir := s.volumes["v"].path
	put(t, filepath.Join(dir, "d", "f"), strings.Repeat("x", 1<<20))
	put(t, filepath.Join(s.volumes["mem"].path, "f"), strings.Repeat("x", 1<<20))
	if err := errors.Join(
		os.Link(filepath.Join(dir, "d", "f"), filepath.Join(dir, "twice")),
		os.Symlink(outside, filepath.Join(dir, "link")),
		os.Mkdir(filepath.Join(dir, "mnt"), 0o755),
		unix.Mount(outside, filepath.Join(dir, "mnt"), "", unix.MS_BIND, ""),
	); err != nil {
		t.Fatal(err)
	}
	got, err := usage(t.Context(), s)
	if err != nil || len(got) != 3 {
		t.Fatalf("%+v %v", got, err)
	}
	// The folder, d, f, link; mnt is another file system's.
	if u := got[0]; !u.Local || u.Memory || u.Limit != 1<<30 || u.Inodes != 4 || u.Bytes < 1<<20 || u.Bytes > 2<<20 || u.Capacity <= 0 || u.Available > u.Capacity {
		t.Errorf("disk: %+v", u)
	}
	if u := got[1]; u.Local || !u.Memory || u.Bytes != 1<<20 || u.Inodes != 2 {
		t.Errorf("memory: %+v", u)
	}
	if u := got[2]; u.Volume != "map" || u.Local || u.Bytes <= 0 || u.Inodes < 8 {
		t.Errorf("files: %+v", u)
	}
	files := s.dirs.Files()
	if err := os.MkdirAll(filepath.Join(files, "termination"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(files, "termination", "c.0"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := usage(t.Context(), s); err != nil || len(got) != 4 || got[0].Volume != "" || !got[0].Local || got[0].Bytes < 1<<20 || got[0].Inodes != 3 {
		t.Errorf("with files of containers: %+v %v", got, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := usage(ended, s); !errors.Is(err, context.Canceled) {
		t.Errorf("%+v %v", got, err)
	}
	if err := unix.Unmount(filepath.Join(dir, "mnt"), 0); err != nil {
		t.Fatal(err)
	}
}

func TestSubPathExpr(t *testing.T) {
	needRoot(t)
	d := testDirs(t)
	c := podContext(source(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}))
	c.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr[int64](2000)}
	s, err := prepare(c, d)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Umask(unix.Umask(0o077))
	for expr, want := range map[string]string{
		"$(NAME)/logs": "one/logs", "$$(NAME)": "$(NAME)", "plain": "plain", "a$": "a$",
		"$(NONE)": "!the container has no variable NONE", "$(UP)": "!not a relative path", "$(ROOT)": "!not a relative path",
	} {
		ct := &corev1.Container{
			Name:         "c",
			Env:          []corev1.EnvVar{{Name: "NAME", Value: "one"}, {Name: "UP", Value: "a/../../b"}, {Name: "ROOT", Value: "/etc"}},
			VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v", SubPathExpr: expr}},
		}
		m, err := s.Mounts(t.Context(), ct)
		if fault, bad := strings.CutPrefix(want, "!"); bad {
			if err == nil || !strings.Contains(err.Error(), fault) {
				t.Errorf("%s: %v", expr, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", expr, err)
			continue
		}
		for dir := want; dir != "."; dir = filepath.Dir(dir) {
			if got := owner(t, filepath.Join(s.volumes["v"].path, dir)); got != "2000 2777" {
				t.Errorf("%s: %s is %s, which is not as open as the volume", expr, dir, got)
			}
		}
		put(t, filepath.Join(m[0].GetHostPath(), "f"), expr)
		if data, err := os.ReadFile(filepath.Join(s.volumes["v"].path, want, "f")); string(data) != expr {
			t.Errorf("%s: %v", expr, err)
		}
	}
}
