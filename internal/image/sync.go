package image

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// sync puts unpacked layers on the disk before a record says that they are
// there. The databases are flushed at each commit; without this, a power cut
// after a pull would leave an image whose files are empty.
func (s *Store) sync() error {
	dir, err := os.Open(s.snapshotDir())
	if err != nil {
		return fmt.Errorf("flush layers: %w", err)
	}
	defer func() { _ = dir.Close() }()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return fmt.Errorf("flush layers in %s: %w", s.snapshotDir(), err)
	}
	return nil
}
