package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/hostpath"
)

// Usage is what a volume takes and what is left where it is.
type Usage struct {
	Volume string // empty for Dirs.Files, which are no volume
	Claim  string // name of its PersistentVolumeClaim, or empty
	// Local is what counts as ephemeral storage of the pod.
	Local         bool
	Memory        bool // it is in memory, and counts as that of who wrote it
	Limit         int64
	Bytes, Inodes int64 // that it takes
	// Of the file system that it is on.
	Capacity, Available int64
	AllInodes, Free     int64
}

// maxEntries bounds how much of a volume is counted. Who has more is told so, and
// the sums are those of what was seen.
const maxEntries = 5_000_000

// Usage measures the pod's volumes, but for host paths and images. File systems of
// their own tell what they hold; folders are walked through, without following
// links or entering other mounts. What could be measured is returned beside the
// error.
func (s *Set) Usage(ctx context.Context) ([]Usage, error) {
	return s.usage(ctx, func(*corev1.Volume) bool { return true })
}

// Own is the Usage of emptyDirs, and at its end of Dirs.Files, which take of the node itself.
// It asks no file system of somebody else, whose server may be dead.
func (s *Set) Own(ctx context.Context) ([]Usage, error) {
	out, err := s.usage(ctx, func(v *corev1.Volume) bool { return v.EmptyDir != nil })
	files, failed := measure(ctx, Usage{Local: true}, s.dirs.Files(), true)
	if errors.Is(failed, fs.ErrNotExist) { // no container was started yet
		return out, err
	}
	if failed != nil {
		err = errors.Join(err, fmt.Errorf("measure hosts file and last words: %w", failed))
	}
	return append(out, files), err
}

// Claimed is the Usage of claims. Their servers may be dead: ctx says how long to wait.
func (s *Set) Claimed(ctx context.Context) ([]Usage, error) {
	return s.usage(ctx, func(v *corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil })
}

func (s *Set) usage(ctx context.Context, counts func(*corev1.Volume) bool) ([]Usage, error) {
	var out []Usage
	var errs []error
	for i := range s.list {
		v := &s.list[i]
		m := s.volumes[v.Name]
		if m.path == "" || v.HostPath != nil || !counts(v) {
			continue
		}
		u := Usage{Volume: v.Name, Claim: m.claim}
		if e := v.EmptyDir; e != nil {
			u.Memory, u.Local = e.Medium != corev1.StorageMediumDefault, e.Medium == corev1.StorageMediumDefault
			if e.SizeLimit != nil {
				u.Limit = e.SizeLimit.Value()
			}
		}
		measured, err := measure(ctx, u, m.path, u.Local || hasContent(v))
		if err != nil {
			errs = append(errs, fmt.Errorf("measure volume %s: %w", v.Name, err))
		}
		out = append(out, measured)
	}
	return out, errors.Join(errs...)
}

// measure fills in what a volume takes. Whole says that the folder is to be
// walked through, as the file system that it is on has more than it.
func measure(ctx context.Context, u Usage, path string, whole bool) (Usage, error) {
	seen, err := hostpath.Look(ctx, path, func() (Usage, error) {
		u := u
		var st unix.Statfs_t
		if err := unix.Statfs(path, &st); err != nil {
			return u, err
		}
		u.Capacity, u.Available = int64(st.Blocks)*st.Bsize, int64(st.Bavail)*st.Bsize
		u.AllInodes, u.Free = int64(st.Files), int64(st.Ffree)
		if whole {
			c := count{links: map[link]bool{}}
			err := (&walk{visit: c.add}).run(ctx, path)
			u.Bytes, u.Inodes = c.bytes, c.inodes
			return u, err
		}
		u.Bytes, u.Inodes = int64(st.Blocks-st.Bfree)*st.Bsize, int64(st.Files-st.Ffree)
		return u, nil
	})
	if seen == (Usage{}) { // the look was left
		seen = u
	}
	return seen, err
}

type link struct{ dev, ino uint64 }

// count adds up a tree. A file with several names counts once.
type count struct {
	bytes, inodes int64
	links         map[link]bool
}

func (c *count) add(n *node) error {
	if c.inodes >= maxEntries {
		return fmt.Errorf("it holds more than %d files, of which no more are counted: %w", maxEntries, errdefs.ErrExhausted)
	}
	if !n.isDir() && n.stat.Nlink > 1 {
		l := link{n.stat.Dev, n.stat.Ino}
		if c.links[l] {
			return nil
		}
		c.links[l] = true
	}
	c.inodes++
	c.bytes += n.stat.Blocks * 512
	return nil
}
