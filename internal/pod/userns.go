package pod

import (
	"fmt"
	"math"

	"fairlead.run/internal/errdefs"
)

// UserNamespace is the pod's own, or nil where it uses the node's.
func (c *Config) UserNamespace() *UserNamespace {
	if u := c.Security.Namespaces.User; u != nil && u.Mode != NamespaceNode {
		return u
	}
	return nil
}

// Check refuses what no pod can have: one line for users and one for groups,
// each beginning with root, are what KEP-127 knows. field names u in errors.
func (u *UserNamespace) Check(field string) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%s%s: %w", field, fmt.Sprintf(format, args...), errdefs.ErrInvalidArgument)
	}
	for _, of := range []struct {
		name string
		list []IDMapping
	}{{"uids", u.UIDs}, {"gids", u.GIDs}} {
		name, list := of.name, of.list
		switch {
		case u.Mode == NamespaceNode && len(list) > 0:
			return fail(".%s is set, and mode is NODE; mappings are for mode POD", name)
		case u.Mode == NamespaceNode:
			continue
		case u.Mode != NamespacePod:
			return fail(".mode is %q; only POD and NODE are possible", u.Mode)
		case len(list) != 1:
			return fail(".%s has %d mappings, and has to have one", name, len(list))
		}
		switch m := list[0]; {
		case m.Length == 0:
			return fail(".%s[0].length is 0", name)
		case m.ContainerID != 0:
			return fail(".%s[0].container_id is %d; root, which is 0, has to be mapped", name, m.ContainerID)
		case uint64(m.HostID)+uint64(m.Length) > math.MaxUint32:
			return fail(".%s[0] maps up to id %d, and the kernel has none above %d", name, uint64(m.HostID)+uint64(m.Length)-1, uint32(math.MaxUint32-1))
		}
	}
	return nil
}

// HostUID is what a user of the namespace is on the node, if it is mapped.
func (u *UserNamespace) HostUID(id uint32) (uint32, bool) { return hostID(u.UIDs, id) }

// HostGID is HostUID for a group.
func (u *UserNamespace) HostGID(id uint32) (uint32, bool) { return hostID(u.GIDs, id) }

func hostID(list []IDMapping, id uint32) (uint32, bool) {
	for _, m := range list {
		if id >= m.ContainerID && id-m.ContainerID < m.Length {
			return m.HostID + id - m.ContainerID, true
		}
	}
	return 0, false
}

// Root is what root of the pod is on the node: root itself, unless the pod has
// a user namespace.
func (c *Config) Root() (uid, gid uint32) {
	if u := c.UserNamespace(); u != nil {
		uid, _ = u.HostUID(0)
		gid, _ = u.HostGID(0)
	}
	return uid, gid
}

// MapRequest asks for a mount of a container in which owners are mapped.
type MapRequest struct {
	Container ContainerID
	Index     int    // of the mount in the container's configuration
	Source    string // absolute, with links followed
	UserNS    string // file of the pod's user namespace
	// Follow lets mounts that are made below the source later appear here too.
	Follow bool
}
