// Package mapping decides what containers may ask of their pod's user namespace,
// and says its mappings as the OCI spec has them. It is pure.
package mapping

import (
	"fmt"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

const options = "linux.security_context.namespace_options.userns_options"

func invalid(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), errdefs.ErrInvalidArgument)
}

// Same refuses a container that asks for another user namespace than its pod
// has, which is nil where it has none. A container that does not ask gets the
// pod's.
func Same(own, pods *pod.UserNamespace) error {
	if own == nil {
		return nil
	}
	if err := own.Check(options); err != nil {
		return err
	}
	switch {
	case own.Mode == pod.NamespaceNode && pods == nil:
		return nil
	case own.Mode == pod.NamespaceNode:
		return invalid("%s.mode is NODE, and the pod's own is POD; containers of a pod share its user namespace", options)
	case pods == nil:
		return invalid("%s.mode is POD, and the pod was made without a user namespace; set it there too", options)
	case !equal(own.UIDs, own.GIDs, pods):
		return invalid("%s has other mappings than the pod's own; containers of a pod share its user namespace", options)
	}
	return nil
}

func equal(uids, gids []pod.IDMapping, u *pod.UserNamespace) bool {
	return slices.Equal(uids, u.UIDs) && slices.Equal(gids, u.GIDs)
}

// Mount allows a mount the mappings of the pod, or none. field names it.
func Mount(field string, m pod.Mount, pods *pod.UserNamespace) error {
	switch {
	case len(m.UIDMappings)+len(m.GIDMappings) == 0:
		return nil
	case pods == nil:
		return invalid("%s.uidMappings or gidMappings are set, and the pod has no user namespace", field)
	case !equal(m.UIDMappings, m.GIDMappings, pods):
		return fmt.Errorf("%s.uidMappings and gidMappings are not those of the pod's user namespace; no others are possible: %w", field, errdefs.ErrUnimplemented)
	}
	return nil
}

// Process refuses ids that are nobody's in the pod's user namespace: the kernel
// would let no process become them.
func Process(uid uint32, groups []uint32, pods *pod.UserNamespace) error {
	if pods == nil {
		return nil
	}
	if _, ok := pods.HostUID(uid); !ok {
		return invalid("user %d is not in the pod's user namespace, whose ids end at %d", uid, pods.UIDs[0].Length-1)
	}
	for _, g := range groups {
		if _, ok := pods.HostGID(g); !ok {
			return invalid("group %d is not in the pod's user namespace, whose ids end at %d", g, pods.GIDs[0].Length-1)
		}
	}
	return nil
}

// TTYGroup is the group of terminals: 5, as distributions number it, or root's
// where there is none.
func TTYGroup(pods *pod.UserNamespace) string {
	if pods != nil {
		if _, ok := pods.HostGID(5); !ok {
			return "0"
		}
	}
	return "5"
}

// OCI is the form of config.json.
func OCI(list []pod.IDMapping) (out []specs.LinuxIDMapping) {
	for _, m := range list {
		out = append(out, specs.LinuxIDMapping{ContainerID: m.ContainerID, HostID: m.HostID, Size: m.Length})
	}
	return out
}

// Sys is the mount of /sys. The kernel mounts that only for who rules over the
// network that it shows; a pod with a user namespace on the node's network sees the
// node's, and cannot write to it, nor below where the handler can see to that.
func Sys(c *pod.Config, access string, recursive bool) specs.Mount {
	options := []string{"nosuid", "noexec", "nodev"}
	if c.UserNamespace() == nil || !c.HostNetwork() {
		return specs.Mount{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: append(options, access)}
	}
	access = "ro"
	if recursive {
		access = "rro"
	}
	return specs.Mount{Destination: "/sys", Type: "bind", Source: "/sys", Options: append(options, "rbind", "rprivate", access)}
}
