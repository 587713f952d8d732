package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/podspec"
)

// Dirs are a pod's own folders.
type Dirs struct {
	Disk   string // survives a reboot; for emptyDir
	Memory string // on a tmpfs; for what comes from objects, and for mounts
}

// Set is the volumes of one pod.
type Set struct {
	dirs  Dirs
	spec  *podspec.Context
	paths map[string]string // volume to host path
	own   map[string]bool   // volumes that belong to the pod alone
}

// Prepare makes the volumes of a pod. If it fails it leaves nothing.
func Prepare(c *podspec.Context, dirs Dirs) (s *Set, err error) {
	s = &Set{dirs: dirs, spec: c, paths: map[string]string{}, own: map[string]bool{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, Remove(dirs))
		}
	}()
	for i := range c.Pod.Spec.Volumes {
		v := &c.Pod.Spec.Volumes[i]
		if err := s.prepare(v); err != nil {
			return nil, fmt.Errorf("prepare volume %s: %w", v.Name, err)
		}
	}
	return s, nil
}

func (s *Set) prepare(v *corev1.Volume) error {
	if v.Image != nil {
		return nil // the runtime mounts it
	}
	if v.HostPath != nil {
		s.paths[v.Name] = v.HostPath.Path
		return checkHostPath(v.HostPath)
	}
	s.own[v.Name] = true
	if e := v.EmptyDir; e != nil && e.Medium != corev1.StorageMediumMemory {
		return s.emptyDir(v.Name, filepath.Join(s.dirs.Disk, "volumes", v.Name))
	}
	dir := filepath.Join(s.dirs.Memory, "volumes", v.Name)
	if v.EmptyDir != nil {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if err := mountTmpfs(dir, v.EmptyDir.SizeLimit); err != nil {
			return err
		}
		return s.emptyDir(v.Name, dir)
	}
	s.paths[v.Name] = dir
	files, err := s.files(v)
	if err != nil {
		return err
	}
	return writeFiles(dir, files, s.group())
}

// emptyDir opens a folder for every user of the pod.
func (s *Set) emptyDir(name, dir string) error {
	s.paths[name] = dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	mode := os.FileMode(0o777)
	if g := s.group(); g != nil {
		if err := os.Lchown(dir, -1, int(*g)); err != nil {
			return err
		}
		mode |= os.ModeSetgid
	}
	return os.Chmod(dir, mode)
}

func (s *Set) group() *int64 {
	if sc := s.spec.Pod.Spec.SecurityContext; sc != nil {
		return sc.FSGroup
	}
	return nil
}

func mountTmpfs(dir string, limit *resource.Quantity) error {
	options := "mode=0777"
	if limit != nil && limit.Value() > 0 {
		options += fmt.Sprintf(",size=%d", limit.Value())
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount tmpfs on %s: %w", dir, err)
	}
	return nil
}

func checkHostPath(h *corev1.HostPathVolumeSource) error {
	kind := corev1.HostPathUnset
	if h.Type != nil {
		kind = *h.Type
	}
	switch kind {
	case corev1.HostPathUnset:
		return nil
	case corev1.HostPathDirectoryOrCreate:
		if err := os.MkdirAll(h.Path, 0o755); err != nil {
			return fmt.Errorf("create folder: %w", err)
		}
	case corev1.HostPathFileOrCreate:
		f, err := os.OpenFile(h.Path, os.O_RDONLY|os.O_CREATE, 0o644)
		if err != nil {
			return fmt.Errorf("create file: %w", err)
		}
		_ = f.Close()
	}
	info, err := os.Stat(h.Path)
	if err != nil {
		return fmt.Errorf("hostPath of type %s: %w", kind, err)
	}
	mode, fits := info.Mode(), false
	switch kind {
	case corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate:
		fits = mode.IsDir()
	case corev1.HostPathFile, corev1.HostPathFileOrCreate:
		fits = mode.IsRegular()
	case corev1.HostPathSocket:
		fits = mode&os.ModeSocket != 0
	case corev1.HostPathCharDev:
		fits = mode&os.ModeCharDevice != 0
	case corev1.HostPathBlockDev:
		fits = mode&os.ModeDevice != 0 && mode&os.ModeCharDevice == 0
	}
	if !fits {
		return fmt.Errorf("hostPath %s is not a %s: %w", h.Path, kind, errdefs.ErrPrecondition)
	}
	return nil
}

// Remove unmounts and deletes both folders of a pod. It deletes nothing while
// something is still mounted there, because that may be the host's own data.
func Remove(dirs Dirs) error {
	for _, dir := range []string{dirs.Memory, dirs.Disk} {
		if err := unmountBelow(dir); err != nil {
			return fmt.Errorf("remove volumes: %w", err)
		}
	}
	var errs []error
	for _, dir := range []string{dirs.Memory, dirs.Disk} {
		if err := os.RemoveAll(dir); err != nil {
			errs = append(errs, fmt.Errorf("remove volumes: %w", err))
		}
	}
	return errors.Join(errs...)
}

func unmountBelow(dir string) error {
	if dir == "" {
		return fmt.Errorf("no folder is given: %w", errdefs.ErrInternal)
	}
	if _, err := os.Lstat(dir); os.IsNotExist(err) {
		return nil
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	for range 2 { // once to unmount, once to see that nothing is left
		mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(real))
		if err != nil {
			return fmt.Errorf("list mounts: %w", err)
		}
		if len(mounts) == 0 {
			return nil
		}
		for i := len(mounts) - 1; i >= 0; i-- { // the newest first
			if err := unix.Unmount(mounts[i].Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
				return fmt.Errorf("unmount %s: %w", mounts[i].Mountpoint, err)
			}
		}
	}
	if mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(real)); err != nil || len(mounts) > 0 {
		return errors.Join(err, fmt.Errorf("%s still holds mounts: %w", real, errdefs.ErrPrecondition))
	}
	return nil
}
