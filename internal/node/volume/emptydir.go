package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resources "k8s.io/component-helpers/resource"

	"fairlead.run/internal/errdefs"
)

// emptyDir is a folder, or a file system in memory, that every user of the pod
// may write. One that is there keeps its content, owner and mode: a container may
// have changed them.
func (s *Set) emptyDir(v *corev1.Volume) (*mounted, error) {
	e := v.EmptyDir
	m := &mounted{own: true, path: s.memoryPath(v.Name)}
	switch {
	case e.Medium == corev1.StorageMediumDefault:
		m.path = s.diskPath(v.Name)
		return m, s.openFolder(m.path)
	case e.Medium == corev1.StorageMediumMemory:
		return m, s.mountMemory(m.path, "tmpfs", sizeOption(s.memorySize(e.SizeLimit)))
	case strings.HasPrefix(string(e.Medium), string(corev1.StorageMediumHugePages)):
		size, err := s.pageSize(e.Medium)
		if err != nil {
			return nil, err
		}
		options := fmt.Sprintf("pagesize=%d", size.Value())
		if limit := s.hugeLimit(size, e.SizeLimit); limit > 0 {
			options += sizeOption(max(limit/size.Value(), 1) * size.Value())
		}
		return m, s.mountMemory(m.path, "hugetlbfs", options)
	}
	return nil, fmt.Errorf("medium %q is not known; there are Memory, HugePages and HugePages-SIZE: %w", e.Medium, errdefs.ErrInvalidArgument)
}

func (s *Set) diskPath(volume string) string {
	return filepath.Join(s.dirs.Disk, volumesFolder, volume)
}

// openMode lets every user of the pod in.
func (s *Set) openMode() os.FileMode {
	if s.group() != nil {
		return 0o777 | os.ModeSetgid
	}
	return 0o777
}

// openFolder makes a folder with its owner and mode at once, so that one that is
// there is complete, or changed on purpose.
func (s *Set) openFolder(dir string) error {
	if info, err := os.Lstat(dir); err == nil {
		if !info.IsDir() {
			return fmt.Errorf("%s is not a folder: %w", dir, errdefs.ErrPrecondition)
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	// No volume has such a name.
	fresh := filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".new")
	if err := os.Mkdir(fresh, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if g := s.group(); g != nil {
		if err := os.Lchown(fresh, -1, int(*g)); err != nil {
			return err
		}
	}
	if err := os.Chmod(fresh, s.openMode()); err != nil {
		return err
	}
	return os.Rename(fresh, dir)
}

// mountMemory mounts a new file system, or leaves the one that is there. Programs and devices
// in it work as in a volume on disk, as for a root file system that a container builds there:
// on the host nobody but root gets to it.
func (s *Set) mountMemory(dir, kind, options string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if there, err := mountinfo.Mounted(dir); err != nil || there {
		return err
	}
	mode := 0o777
	if kind == "tmpfs" { // each user's files are their own there, as the kernel and the kubelet have it
		mode |= unix.S_ISVTX
	}
	if g := s.group(); g != nil {
		mode |= unix.S_ISGID
		options += fmt.Sprintf(",gid=%d", *g)
	}
	options = strings.TrimPrefix(options+fmt.Sprintf(",mode=%04o", mode), ",")
	err := errors.New("not tried")
	if kind == "tmpfs" { // its pages stay out of swap, where the kernel can do that (6.4)
		err = unix.Mount(kind, dir, kind, 0, options+",noswap")
	}
	if err != nil {
		err = unix.Mount(kind, dir, kind, 0, options)
	}
	if err != nil {
		return fmt.Errorf("mount %s on %s with %s: %w", kind, dir, options, err)
	}
	return nil
}

func sizeOption(bytes int64) string {
	if bytes <= 0 {
		return ""
	}
	return fmt.Sprintf(",size=%d", bytes)
}

// memorySize is the least of what the node has for pods, what the pod may use,
// and what the volume says. Zero if none is known.
func (s *Set) memorySize(limit *resource.Quantity) int64 {
	size := s.spec.Node.MemoryBytes
	if q := s.around.Allocatable.Memory(); q.Sign() > 0 {
		size = q.Value()
	}
	for _, q := range []*resource.Quantity{podLimit(s.spec.Pod, corev1.ResourceMemory), limit} {
		if q != nil && q.Sign() > 0 && (size <= 0 || q.Value() < size) {
			size = q.Value()
		}
	}
	return size
}

// podLimit is what all containers together may use, or nil if one is not bound.
func podLimit(pod *corev1.Pod, name corev1.ResourceName) *resource.Quantity {
	whole := pod.Spec.Resources != nil && has(pod.Spec.Resources.Limits, name)
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if !whole && !has(list[i].Resources.Limits, name) {
				return nil
			}
		}
	}
	q, ok := resources.PodLimits(pod, resources.PodResourcesOptions{})[name]
	if !ok {
		return nil
	}
	return &q
}

func has(list corev1.ResourceList, name corev1.ResourceName) bool {
	_, ok := list[name]
	return ok
}

// pageSize is what the medium names, or else the only one that the pod asks for.
func (s *Set) pageSize(medium corev1.StorageMedium) (resource.Quantity, error) {
	var none resource.Quantity
	if text, ok := strings.CutPrefix(string(medium), string(corev1.StorageMediumHugePagesPrefix)); ok {
		q, err := resource.ParseQuantity(text)
		if err != nil || q.Value() <= 0 {
			return none, fmt.Errorf("medium %q names no size of pages: %w", medium, errdefs.ErrInvalidArgument)
		}
		return q, nil
	}
	found := ""
	for name := range resources.PodLimits(s.spec.Pod, resources.PodResourcesOptions{}) {
		text, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
		if !ok {
			continue
		}
		if found != "" {
			return none, fmt.Errorf("the pod asks for pages of several sizes; write medium: HugePages-SIZE: %w", errdefs.ErrInvalidArgument)
		}
		found = text
	}
	if found == "" {
		return none, fmt.Errorf("medium HugePages needs a container that asks for hugepages-SIZE: %w", errdefs.ErrInvalidArgument)
	}
	return resource.ParseQuantity(found)
}

// hugeLimit is the lesser of the pod's and the volume's limit.
func (s *Set) hugeLimit(page resource.Quantity, limit *resource.Quantity) int64 {
	size := int64(0)
	pod := resources.PodLimits(s.spec.Pod, resources.PodResourcesOptions{})
	for name, q := range pod {
		text, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
		if of, err := resource.ParseQuantity(text); ok && err == nil && of.Cmp(page) == 0 {
			size = q.Value()
		}
	}
	if limit != nil && limit.Sign() > 0 && (size == 0 || limit.Value() < size) {
		size = limit.Value()
	}
	return size
}
