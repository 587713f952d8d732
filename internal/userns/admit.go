package userns

import (
	"fmt"
	"os"
)

// Closed is the mode of folders of the state directory that nobody but root is
// to get into.
const Closed = 0o700

// Admit lets a group go through a folder, and everybody through those above,
// but list none of them. A runtime follows some paths as root of a user
// namespace, who is nobody outside of it; gid is what his group is there.
func Admit(folder string, gid uint32, above ...string) error {
	for _, dir := range above {
		if err := os.Chmod(dir, 0o711); err != nil {
			return fmt.Errorf("let the pod's root through: %w", err)
		}
	}
	if err := os.Chown(folder, 0, int(gid)); err != nil {
		return fmt.Errorf("let the pod's root through: %w", err)
	}
	if err := os.Chmod(folder, 0o710); err != nil {
		return fmt.Errorf("let the pod's root through: %w", err)
	}
	return nil
}
