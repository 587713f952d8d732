package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/errdefs"
)

// On most machines everything is shared. Taking away a copy of a folder of the host
// must not take away what is mounted in the original.
func TestRemoveLeavesSharedMountsOfTheHost(t *testing.T) {
	needRoot(t)
	host := t.TempDir()
	if err := errors.Join(
		unix.Mount("none", host, "tmpfs", 0, ""), unix.Mount("", host, "", unix.MS_SHARED, ""),
		os.MkdirAll(filepath.Join(host, "sub", "disk"), 0o755), os.MkdirAll(filepath.Join(host, "sub", "later"), 0o755),
		unix.Mount("none", filepath.Join(host, "sub", "disk"), "tmpfs", 0, ""),
	); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, dir := range []string{"sub/disk", "sub/later", ""} {
			_ = unix.Unmount(filepath.Join(host, dir), unix.MNT_DETACH)
		}
	})
	put(t, filepath.Join(host, "sub", "disk", "keep"), "")
	for _, propagation := range []*corev1.MountPropagationMode{nil, ptr(corev1.MountPropagationBidirectional)} {
		d := testDirs(t)
		s, err := prepare(podContext(source(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: host}})), d)
		if err != nil {
			t.Fatal(err)
		}
		m, err := s.Mounts(t.Context(), &corev1.Container{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v", SubPath: "sub", MountPropagation: propagation}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(m[0].GetHostPath(), "disk", "keep")); err != nil {
			t.Errorf("what is mounted in it is missing: %v", err)
		}
		// What the host mounts comes in.
		if err := unix.Mount("none", filepath.Join(host, "sub", "later"), "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(host, "sub", "later", "keep"), "")
		if _, err := os.Stat(filepath.Join(m[0].GetHostPath(), "later", "keep")); err != nil {
			t.Errorf("what was mounted later is missing: %v", err)
		}
		// What is mounted in the copy gets out of it only where that is asked for.
		inside := filepath.Join(m[0].GetHostPath(), "inside")
		if err := errors.Join(os.MkdirAll(inside, 0o755), unix.Mount("none", inside, "tmpfs", 0, "")); err != nil {
			t.Fatal(err)
		}
		if out := len(mountsBelow(t, filepath.Join(host, "sub", "inside"))) > 0; out != (propagation != nil) {
			t.Errorf("propagation %v: a mount got out: %t", propagation != nil, out)
		}
		if err := unix.Unmount(inside, 0); err != nil {
			t.Fatal(err)
		}
		if err := Remove(t.Context(), d, nil); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{"disk", "later"} {
			if _, err := os.Stat(filepath.Join(host, "sub", dir, "keep")); err != nil {
				t.Errorf("propagation %v: the host has lost a mount: %v", propagation != nil, err)
			}
		}
		if err := unix.Unmount(filepath.Join(host, "sub", "later"), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// A mount that comes after everything was unmounted, as from a container that still
// runs, is somebody's data.
func TestNothingIsDeletedThroughAMount(t *testing.T) {
	needRoot(t)
	host, dir := t.TempDir(), t.TempDir()
	put(t, filepath.Join(host, "keep"), "")
	put(t, filepath.Join(dir, "a", "f"), "")
	target := filepath.Join(dir, "a", "mnt")
	if err := errors.Join(os.Mkdir(target, 0o755), unix.Mount(host, target, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	if err := deleteTree(t.Context(), dir); !errors.Is(err, errdefs.ErrPrecondition) {
		t.Error(err)
	}
	if err := unmountBelow(dir); err != nil {
		t.Fatal(err)
	}
	if err := deleteTree(t.Context(), dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(host, "keep")); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Error("it is left")
	}
}

// TestDeepFoldersAreDeleted has folders deeper than any path is long, which a container makes
// step by step, with files and links in them.
func TestDeepFoldersAreDeleted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pod")
	fd := unix.AT_FDCWD
	for i := range 5000 {
		name := "d"
		if i == 0 {
			name = dir
		}
		if err := unix.Mkdirat(fd, name, 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, name, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if i%500 == 7 {
			file, err := unix.Openat(next, "f", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
			if err := errors.Join(err, unix.Close(file), unix.Symlinkat("/", next, "link")); err != nil {
				t.Fatal(err)
			}
		}
		if fd != unix.AT_FDCWD {
			_ = unix.Close(fd)
		}
		fd = next
	}
	_ = unix.Close(fd)
	if err := deleteTree(t.Context(), dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Error("it is left")
	}
}

// TestNothingIsMountedForAPodThatIsGone has a volume answer that hung while its pod was
// removed.
func TestNothingIsMountedForAPodThatIsGone(t *testing.T) {
	needRoot(t)
	d, host := testDirs(t), t.TempDir()
	b := binding{volume: host, sub: "new", target: filepath.Join(subPaths(d), "c", "0")}
	if err := os.MkdirAll(filepath.Dir(b.target), 0o700); err != nil {
		t.Fatal(err)
	}
	left, leave := context.WithCancel(t.Context())
	leave()
	if err := b.bind(left); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody waits for it: %v", err)
	}
	if err := Remove(t.Context(), d, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.bind(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the pod is gone: %v", err)
	}
	if found := mountsBelow(t, d.Memory); len(found) > 0 {
		t.Errorf("mounted: %v", found)
	}
	if _, err := os.Lstat(d.Memory); !os.IsNotExist(err) {
		t.Error("the pod's folder is there again")
	}
}

func TestRemoveIsRetryable(t *testing.T) {
	needRoot(t)
	d := testDirs(t)
	s, err := prepare(emptyDirs(), d)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1200 { // more than one reading of a folder
		put(t, filepath.Join(s.volumes["v"].path, "d", "e", fmt.Sprint(i)), "")
	}
	link := filepath.Join(s.volumes["v"].path, "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Remove(ended, d, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for range 2 {
		if err := Remove(t.Context(), d, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(d.Disk); !os.IsNotExist(err) {
		t.Error("it is left")
	}
	if err := Remove(t.Context(), Dirs{}, nil); err != nil {
		t.Error(err)
	}
}

// What a pod has had of its own goes with its end, and neither its logs nor what is the
// host's.
func TestDiscard(t *testing.T) {
	needRoot(t)
	host, d := t.TempDir(), testDirs(t)
	put(t, filepath.Join(host, "sub", "keep"), "")
	logs := filepath.Join(d.Disk, "logs", "c")
	put(t, logs, "")
	c := podContext()
	c.Pod.Spec.Volumes = []corev1.Volume{
		{Name: "disk", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
		{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: host}}},
	}
	s, err := prepare(c, d)
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := s.Mounts(t.Context(), &corev1.Container{Name: "c", VolumeMounts: []corev1.VolumeMount{
		{Name: "disk", MountPath: "/disk", SubPath: "sub"}, {Name: "memory", MountPath: "/memory"}, {Name: "host", MountPath: "/host", SubPath: "sub"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts[:2] {
		put(t, filepath.Join(m.GetHostPath(), "deep", "file"), "much")
	}
	for range 2 { // the second time nothing is there
		if err := Discard(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{filepath.Join(d.Disk, volumesFolder), filepath.Join(d.Memory, volumesFolder), subPaths(d)} {
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
	if left := mountsBelow(t, d.Memory); len(left) > 0 {
		t.Errorf("mounts are left: %v", left)
	}
	for _, file := range []string{logs, filepath.Join(host, "sub", "keep")} {
		if _, err := os.Stat(file); err != nil {
			t.Errorf("what is to stay is gone: %v", err)
		}
	}
}
