package image

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// sync puts blobs and unpacked layers on the disk before a record says that they
// are there. The databases are flushed at each commit; without this, a power cut
// after a pull would leave an image whose files are empty.
func (s *Store) sync() error {
	flushed := map[uint64]bool{} // by file system; it is one, unless somebody has mounted another below the root
	for _, path := range []string{s.snapshotDir(), s.contentDir()} {
		if err := syncOnce(path, flushed); err != nil {
			return fmt.Errorf("flush %s: %w", path, err)
		}
	}
	return nil
}

func syncOnce(path string, flushed map[uint64]bool) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil || flushed[st.Dev] {
		return err
	}
	flushed[st.Dev] = true
	return unix.Syncfs(int(dir.Fd()))
}
