package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
)

// Mounts are the mounts of one container.
func (s *Set) Mounts(ct *corev1.Container) ([]*runtimeapi.Mount, error) {
	var out []*runtimeapi.Mount
	for i, m := range ct.VolumeMounts {
		mount, err := s.mount(ct.Name, i, m)
		if err != nil {
			return nil, err
		}
		if err := s.recursive(m, mount); err != nil {
			return nil, fmt.Errorf("mount volume %s in container %s: %w", m.Name, ct.Name, err)
		}
		out = append(out, mount)
	}
	return out, nil
}

// mount is the mount with that index. A subPath on the host is bound to a folder
// of the pod's own first, because a container that shares the volume could swap
// the path for a link between now and the runtime's own look at it. One in an
// image is the runtime's to find.
func (s *Set) mount(container string, i int, m corev1.VolumeMount) (*runtimeapi.Mount, error) {
	at := filepath.Clean(m.MountPath)
	if image := s.image(m.Name); image != nil {
		spec := &runtimeapi.ImageSpec{Image: s.spec.Pulled(image.Reference), UserSpecifiedImage: image.Reference}
		return &runtimeapi.Mount{ContainerPath: at, Readonly: true, Image: spec, ImageSubPath: m.SubPath}, nil
	}
	host := s.paths[m.Name]
	if m.SubPath != "" {
		target := filepath.Join(s.dirs.Memory, "subpaths", container, strconv.Itoa(i))
		if err := s.bindSubPath(m.Name, m.SubPath, target); err != nil {
			return nil, fmt.Errorf("mount %s of volume %s in container %s: %w", m.SubPath, m.Name, container, err)
		}
		host = target
	}
	return &runtimeapi.Mount{
		ContainerPath: at, HostPath: host,
		Readonly: m.ReadOnly || s.readOnly(m.Name), SelinuxRelabel: s.own[m.Name],
	}, nil
}

// image is what a volume of that kind shows, or nil.
func (s *Set) image(volume string) *corev1.ImageVolumeSource {
	for _, v := range s.spec.Pod.Spec.Volumes {
		if v.Name == volume {
			return v.Image
		}
	}
	return nil
}

// readOnly says whether nobody may write: what comes from objects is theirs.
func (s *Set) readOnly(volume string) bool {
	for _, v := range s.spec.Pod.Spec.Volumes {
		if v.Name == volume {
			return v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
		}
	}
	return false
}

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

// bindSubPath binds what sub names below a volume to target. A link may lead
// anywhere within the volume and nowhere else.
func (s *Set) bindSubPath(volume, sub, target string) error {
	root, err := unix.Open(s.paths[volume], unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open volume: %w", err)
	}
	defer func() { _ = unix.Close(root) }()
	fd, err := openBelow(root, sub)
	if errors.Is(err, unix.ENOENT) {
		if fd, err = createBelow(root, sub); err == nil && s.own[volume] {
			err = s.shareFolder(fd)
		}
	}
	if errors.Is(err, unix.EXDEV) {
		return fmt.Errorf("subPath leads out of the volume: %w", errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	if err := mountPoint(target, stat.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
		return err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind subPath: %w", err)
	}
	return nil
}

func (s *Set) shareFolder(fd int) error {
	path := fmt.Sprintf("/proc/self/fd/%d", fd)
	mode := os.FileMode(0o777)
	if g := s.group(); g != nil {
		if err := os.Chown(path, -1, int(*g)); err != nil {
			return err
		}
		mode |= os.ModeSetgid
	}
	return os.Chmod(path, mode)
}

// mountPoint makes an empty folder or file. A mount of an earlier attempt of
// the container is taken away first.
func mountPoint(target string, dir bool) error {
	if err := unmountBelow(target); err != nil {
		return err
	}
	if err := os.RemoveAll(target); err != nil {
		return err
	}
	if dir {
		return os.MkdirAll(target, 0o700)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return err
	}
	return os.WriteFile(target, nil, 0o600)
}

func openBelow(root int, path string) (int, error) {
	return unix.Openat2(root, path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// createBelow makes the folders of a path that are missing.
func createBelow(root int, path string) (int, error) {
	done := ""
	for step := range strings.SplitSeq(filepath.Clean(path), "/") {
		parent := root
		if done != "" {
			fd, err := openBelow(root, done)
			if err != nil {
				return -1, err
			}
			defer func() { _ = unix.Close(fd) }()
			parent = fd
		}
		if err := unix.Mkdirat(parent, step, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
			return -1, fmt.Errorf("create subPath: %w", err)
		}
		done = filepath.Join(done, step)
	}
	return openBelow(root, done)
}
