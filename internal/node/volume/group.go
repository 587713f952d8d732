package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/hostpath"
)

// What the pod's group may do with files of a volume, by whether it is writable.
const (
	groupReads  = 0o440
	groupWrites = 0o660
	groupEnters = 0o110 // folders
)

// setGroup gives a volume to the pod's group: what it holds belongs to the group,
// can be read and written by it, and new files do too. The folder itself is last,
// so that an interrupted change is seen by OnRootMismatch.
func (s *Set) setGroup(ctx context.Context, dir string, readOnly bool) error {
	g := s.group()
	if g == nil {
		return nil
	}
	change := groupChange{gid: int(*g), bits: groupWrites}
	if readOnly {
		change.bits = groupReads
	}
	if p := s.spec.Pod.Spec.SecurityContext.FSGroupChangePolicy; p != nil {
		change.onMismatch = *p == corev1.FSGroupChangeOnRootMismatch
	}
	refused, err := hostpath.Look(ctx, dir, func() (refusal, error) {
		err := change.apply(ctx, dir)
		return change.refused, err
	})
	if err != nil {
		return fmt.Errorf("give it to group %d (fsGroup): %w", *g, err)
	}
	delete(s.refused, dir)
	if refused.files > 0 {
		s.refused[dir] = fmt.Errorf("%d files of %s could not be given to group %d (fsGroup) with its rights, the first of them: %w", refused.files, dir, *g, refused.first)
	}
	return nil
}

// Refused is what the file systems of volumes did not let the pod's group have. The pod has
// them all the same, as a server may let its users in by other rules: NFS that squashes root,
// or snapshots that are always read-only.
func (s *Set) Refused() error { return errors.Join(slices.Collect(maps.Values(s.refused))...) }

// refusal counts the files that a file system has not given to a group.
type refusal struct {
	files int
	first error
}

type groupChange struct {
	gid        int
	bits       uint32 // of files
	onMismatch bool
	refused    refusal
}

func (c *groupChange) apply(ctx context.Context, dir string) error {
	if c.onMismatch {
		var st unix.Stat_t
		if err := unix.Lstat(dir, &st); err != nil {
			return err
		}
		if int(st.Gid) == c.gid && c.mode(&st) == st.Mode&0o7777 {
			return nil
		}
	}
	return (&walk{visit: c.change}).run(ctx, dir)
}

// mode is what a file's mode is to be.
func (c *groupChange) mode(st *unix.Stat_t) uint32 {
	mode := st.Mode&0o7777 | c.bits
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		mode |= groupEnters | unix.S_ISGID
	}
	return mode
}

// change works on the place that was looked at, whatever has its name by now. A
// link is given to the group itself.
func (c *groupChange) change(n *node) error {
	mode := c.mode(&n.stat) // changing the owner takes bits away
	if int(n.stat.Gid) != c.gid {
		if err := unix.Fchownat(n.fd, "", -1, c.gid, unix.AT_EMPTY_PATH); err != nil {
			c.refuse(fmt.Errorf("change the group of %s: %w", n.name, err))
			return nil
		}
	} else if mode == n.stat.Mode&0o7777 {
		return nil
	}
	if n.stat.Mode&unix.S_IFMT == unix.S_IFLNK {
		return nil
	}
	if err := unix.Chmod(n.path(), mode); err != nil {
		c.refuse(fmt.Errorf("change the mode of %s: %w", n.name, err))
	}
	return nil
}

func (c *groupChange) refuse(err error) {
	c.refused.files++
	if c.refused.first == nil {
		c.refused.first = err
	}
}
