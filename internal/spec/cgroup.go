package spec

import (
	"context"
	"path"
	"strings"
)

// cgroup says where the container's cgroup is: below the pod's.
func (b *build) cgroup(context.Context) error {
	p, err := CgroupsPath(b.cfg.CgroupDriver, b.req.Record.Sandbox.Cgroup, string(b.req.Container.ID))
	if err != nil {
		return err
	}
	b.spec.Linux.CgroupsPath = p
	return nil
}

// CgroupsPath is linux.cgroupsPath of a container whose pod has that cgroup: a
// path for cgroupfs, and "slice:prefix:name" for systemd, which makes the scope
// prefix-name.scope in that slice.
func CgroupsPath(driver CgroupDriver, parent, id string) (string, error) {
	const field = "the pod's linux.cgroup_parent"
	slice := strings.HasSuffix(path.Base(parent), ".slice")
	if driver == CgroupSystemd {
		if !slice {
			return "", invalid(field, "%q is not a slice, and the cgroup driver is systemd; set the driver of both sides to the same", parent)
		}
		return path.Base(parent) + ":fairlead:" + id, nil
	}
	if slice {
		return "", invalid(field, "%q is a systemd slice, and the cgroup driver is cgroupfs; set the driver of both sides to the same", parent)
	}
	return path.Join("/", parent, id), nil
}
