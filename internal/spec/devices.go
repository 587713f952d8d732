package spec

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/pod"
	"fairlead.run/internal/spec/devnode"
)

// allAccess is reading, writing and making a node.
const allAccess = "rwm"

// devices starts from "no access", to which runtimes add null, zero, full, tty,
// random and the terminals. A privileged container has access to all, and sees
// the host's unless the handler's configuration says otherwise.
func (b *build) devices(context.Context) error {
	privileged := b.security().Privileged
	b.spec.Linux.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: privileged, Access: allAccess}}
	if privileged && !b.req.Handler.PrivilegedWithoutHostDevices {
		found, err := devnode.All()
		if err != nil {
			return fmt.Errorf("list the host's devices: %w", err)
		}
		b.spec.Linux.Devices = found
	}
	for i, d := range b.container().Devices {
		if err := b.device(fmt.Sprintf("devices[%d]", i), d); err != nil {
			return err
		}
	}
	return nil
}

func (b *build) device(field string, d pod.Device) error {
	access := d.Permissions
	if access == "" {
		access = allAccess
	}
	if strings.Trim(access, allAccess) != "" || len(access) > len(allAccess) {
		return invalid(field+".permissions", "%q has other letters than r, w and m", d.Permissions)
	}
	if !path.IsAbs(d.HostPath) {
		return invalid(field+".host_path", "%q is not an absolute path", d.HostPath)
	}
	at := d.ContainerPath
	if at == "" {
		at = d.HostPath
	}
	if !path.IsAbs(at) || path.Clean(at) == "/" {
		return invalid(field+".container_path", "%q is not an absolute path of a device", at)
	}
	found, err := devnode.Find(d.HostPath, path.Clean(at))
	if err != nil {
		return fmt.Errorf("%s.host_path %s: %w", field, d.HostPath, err)
	}
	for _, f := range found {
		b.spec.Linux.Devices = slices.DeleteFunc(b.spec.Linux.Devices, func(o specs.LinuxDevice) bool { return o.Path == f.Path })
		b.spec.Linux.Devices = append(b.spec.Linux.Devices, f)
		b.spec.Linux.Resources.Devices = append(b.spec.Linux.Resources.Devices, specs.LinuxDeviceCgroup{
			Allow: true, Type: f.Type, Major: ptr(f.Major), Minor: ptr(f.Minor), Access: access,
		})
	}
	return nil
}
