package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/node/volume/tree"
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
	At                  time.Time // when it was measured; zero if it was not
}

// maxEntries bounds how much of a volume is counted. Who has more is told so, and
// the sums are those of what was seen.
const maxEntries = 5_000_000

// Part is something of a pod that can be measured by itself, as its server may be dead.
type Part struct {
	Usage // what is known without a look at it
	// Measure says what it takes, or what of that it could find out beside the error. It is
	// zero for what is not there.
	Measure func(context.Context) (Usage, error)
}

// Parts are the pod's volumes, but for host paths and images, and Dirs.Files. File systems
// of their own tell what they hold; folders are walked through, without following links or
// entering other mounts.
func (s *Set) Parts() []Part {
	out := []Part{part(Usage{Local: true}, s.dirs.Files(), true)}
	for i := range s.list {
		v := &s.list[i]
		m := s.volumes[v.Name]
		if m.path == "" || v.HostPath != nil {
			continue
		}
		u := Usage{Volume: v.Name, Claim: m.claim}
		if e := v.EmptyDir; e != nil {
			u.Memory, u.Local = e.Medium != corev1.StorageMediumDefault, e.Medium == corev1.StorageMediumDefault
			if e.SizeLimit != nil {
				u.Limit = e.SizeLimit.Value()
			}
		}
		out = append(out, part(u, m.path, u.Local || hasContent(v)))
	}
	return out
}

func part(u Usage, path string, whole bool) Part {
	return Part{u, func(ctx context.Context) (Usage, error) {
		got, err := measure(ctx, u, path, whole)
		switch {
		case errors.Is(err, fs.ErrNotExist): // no container was started yet, or it is all gone
			return Usage{}, nil
		case err != nil && u.Volume == "":
			err = fmt.Errorf("measure hosts file and last words: %w", err)
		case err != nil:
			err = fmt.Errorf("measure volume %s: %w", u.Volume, err)
		}
		return got, err
	}}
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
		u.At = time.Now()
		u.Capacity, u.Available = int64(st.Blocks)*st.Bsize, int64(st.Bavail)*st.Bsize
		u.AllInodes, u.Free = int64(st.Files), int64(st.Ffree)
		if whole {
			c := count{links: map[link]bool{}}
			err := (&tree.Walk{Visit: c.add}).Run(ctx, path)
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

func (c *count) add(n *tree.Node) error {
	if c.inodes >= maxEntries {
		return fmt.Errorf("it holds more than %d files, of which no more are counted: %w", maxEntries, errdefs.ErrExhausted)
	}
	if !n.IsDir() && n.Stat.Nlink > 1 {
		l := link{n.Stat.Dev, n.Stat.Ino}
		if c.links[l] {
			return nil
		}
		c.links[l] = true
	}
	c.inodes++
	c.bytes += n.Stat.Blocks * 512
	return nil
}
