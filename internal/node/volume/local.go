package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/hostpath"
)

// A local volume is one folder for all of its pods, so that it belongs to the group of the first
// of them for as long as any uses it. Which pods do is in a folder of each on the tmpfs, which ends
// with the boot as the pods do: a link to the volume, with the pod's name for it and how the pod has it.
const (
	localFolder = "local"
	endGiven    = ".given" // the pod is, or was to be, the first
	endLeft     = ".left"  // another pod had it already
)

// local is a volume of the kind local.
type local struct {
	volume string // of the pod
	name   string // of the PersistentVolume
}

// Shared is what there is to say of volumes that another pod has, and that belong to another group
// than the pod's.
func (s *Set) Shared() []string { return s.shared }

// mayGive writes down that the pod uses a local volume, and says whether its files are to be given
// to the pod's group. What was decided once holds until the pod ends.
func (s *Set) mayGive(ctx context.Context, m *mounted) (bool, error) {
	dir := filepath.Join(s.dirs.Memory, localFolder)
	for _, end := range []string{endGiven, endLeft} {
		if _, err := os.Readlink(filepath.Join(dir, m.local.volume+end)); err == nil {
			return end == endGiven && m.give, nil
		}
	}
	taken, err := s.usedByOthers(m.path)
	if err != nil {
		return false, fmt.Errorf("see whether another pod uses it: %w", err)
	}
	end := endGiven
	if taken {
		end = endLeft
		if err := s.compareGroup(ctx, m); err != nil {
			return false, err
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, fmt.Errorf("write down that the pod uses it: %w", err)
	}
	if err := os.Symlink(m.path, filepath.Join(dir, m.local.volume+end)); err != nil {
		return false, fmt.Errorf("write down that the pod uses it: %w", err)
	}
	return m.give && !taken, nil
}

// usedByOthers says whether another pod's folder has a link to the volume.
func (s *Set) usedByOthers(path string) (bool, error) {
	all := filepath.Dir(s.dirs.Memory)
	pods, err := os.ReadDir(all)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	for _, pod := range pods {
		if pod.Name() == filepath.Base(s.dirs.Memory) {
			continue
		}
		folder := filepath.Join(all, pod.Name(), localFolder)
		links, err := os.ReadDir(folder)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			return false, err
		}
		for _, link := range links {
			if to, err := os.Readlink(filepath.Join(folder, link.Name())); err == nil && to == path {
				return true, nil
			}
		}
	}
	return false, nil
}

// compareGroup notes that a volume belongs to another group than the pod's.
func (s *Set) compareGroup(ctx context.Context, m *mounted) error {
	g := s.group()
	if g == nil {
		return nil
	}
	st, err := hostpath.Look(ctx, m.path, func() (unix.Stat_t, error) {
		var st unix.Stat_t
		return st, unix.Stat(m.path, &st)
	})
	if err != nil {
		return fmt.Errorf("see whose group it has: %w", err)
	}
	if int64(st.Gid) != *g {
		s.shared = append(s.shared, fmt.Sprintf("volume %s keeps the group %d, as another pod has it, and is not given to %d (fsGroup of this pod); give pods that share it the same fsGroup", m.local.name, st.Gid, *g))
	}
	return nil
}

// forgetLocal takes away what says that the pod uses local volumes.
func forgetLocal(dirs Dirs) error { return os.RemoveAll(filepath.Join(dirs.Memory, localFolder)) }
