package installer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/inroot"
	"fairlead.run/internal/installer/fault"
	"fairlead.run/internal/installer/files"
)

// reachable refuses changes that would be made in the container's own files, as what they
// lead to on the node is not mounted there.
func (i *Installer) reachable(changes []files.Change) error {
	for _, c := range changes {
		if err := mounted(i.root(), i.options.Root, c.Path); err != nil {
			return fault.New(payload.UnsupportedNode, "%w: mount it, or have %s", err, i.readsUsual())
		}
	}
	return nil
}

// readsUsual says where the runtime's configuration is to be for the installer to see it.
func (i *Installer) readsUsual() string {
	usual := i.dist.Containerd.Main
	if i.dist.Runtime == "crio" {
		usual = i.dist.CRIO.DropIns
	}
	return fmt.Sprintf("%s read %s, without links to elsewhere", i.dist.Runtime, usual)
}

// mounted says whether the folder of a file, or the lowest one above that there is, is the
// same on the node, which has its root directory at node, and as it is seen at here.
func mounted(node, here, path string) error {
	at, seen := inroot.Join(node, path), inroot.Join(here, path)
	for {
		below := at
		at, seen = filepath.Dir(at), filepath.Dir(seen)
		there, err := os.Stat(at)
		if errors.Is(err, fs.ErrNotExist) && at != below {
			continue
		}
		if err != nil {
			return fmt.Errorf("look at the folder of %s: %w", path, err)
		}
		if own, err := os.Stat(seen); err != nil || !os.SameFile(there, own) {
			return fmt.Errorf("%s leads to a folder of the node that is not mounted in this container", path)
		}
		return nil
	}
}
