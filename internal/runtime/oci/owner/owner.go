// Package owner says who the process of a container with a user namespace is on
// the host, and gives that user the pipes of the process.
package owner

import (
	"fmt"
	"os"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
)

// Mappings are those of config.json, in its linux part.
type Mappings struct {
	UIDs []specs.LinuxIDMapping `json:"uidMappings,omitempty"`
	GIDs []specs.LinuxIDMapping `json:"gidMappings,omitempty"`
}

// Owner is who a user of the container is on the host, if it has a user
// namespace; otherwise root. The runtime gives a process its input and output,
// but can give it no file of somebody whom the namespace does not know. Such a
// process could not open /dev/stdout.
func (m Mappings) Owner(u specs.User) monitorv1.Owner {
	return monitorv1.Owner{UID: outside(m.UIDs, u.UID), GID: outside(m.GIDs, u.GID)}
}

// outside is an id as the host has it; root's without mappings.
func outside(list []specs.LinuxIDMapping, id uint32) uint32 {
	for _, m := range list {
		if id >= m.ContainerID && id-m.ContainerID < m.Size {
			return m.HostID + id - m.ContainerID
		}
	}
	return 0
}

// Give makes pipes the owner's.
func Give(files [3]*os.File, owner monitorv1.Owner) error {
	if owner == (monitorv1.Owner{}) {
		return nil
	}
	for _, f := range files {
		if f == nil {
			continue
		}
		info, err := f.Stat()
		if err != nil {
			return fmt.Errorf("look at the input and output: %w", err)
		}
		if info.Mode()&os.ModeNamedPipe == 0 {
			continue // a file that others have too
		}
		if err := unix.Fchown(int(f.Fd()), int(owner.UID), int(owner.GID)); err != nil {
			return fmt.Errorf("give a pipe to the process: %w", err)
		}
	}
	return nil
}
