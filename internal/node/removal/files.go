package removal

import (
	"context"
	"errors"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/node/userids"
	"fairlead.run/internal/node/volume"
)

// Dirs are the folders of a pod's volumes and logs, below the persistent folder and
// that on a tmpfs.
func Dirs(root, state, uid string) volume.Dirs {
	return volume.Dirs{Disk: filepath.Join(root, "run", uid), Memory: filepath.Join(state, "run", uid)}
}

// Files removes what was prepared for a pod: volumes, logs and ids of its users.
func Files(ctx context.Context, root, state, uid string) error {
	if !IsUID(uid) {
		return nil // not one of ours
	}
	return errors.Join(volume.Remove(ctx, Dirs(root, state, uid), nil), userids.New(userids.In(root)).Free(types.UID(uid)))
}

// IsUID keeps a sandbox's free text from naming a folder.
func IsUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i, c := range s {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		hex := (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')
		if dash != (c == '-') || (!dash && !hex) {
			return false
		}
	}
	return true
}
