package spec

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/spec/hostile"
	"fairlead.run/internal/spec/mapping"
	"fairlead.run/internal/spec/volume"
	"fairlead.run/internal/stage"
)

const devShm = "/dev/shm"

// mounts are the kernel's file systems, then the pod's files and the request's
// mounts by their depth, so that none hides another. What the request mounts
// replaces what would be there by default.
func (b *build) mounts(ctx context.Context) error {
	wanted := map[string]bool{}
	for i, m := range b.container().Mounts {
		field := fmt.Sprintf("mounts[%d].container_path", i)
		if !path.IsAbs(m.ContainerPath) || strings.ContainsRune(m.ContainerPath, 0) {
			return invalid(field, "%q is not an absolute path", m.ContainerPath)
		}
		if path.Clean(m.ContainerPath) == "/" {
			return invalid(field, "is the root of the container; mount below it")
		}
		if err := overProc(ctx, field, m); err != nil {
			return err
		}
		wanted[path.Clean(m.ContainerPath)] = true
	}
	for _, m := range b.kernelMounts(ctx) {
		if !wanted[m.Destination] && (!wanted["/dev"] || !strings.HasPrefix(m.Destination, "/dev/")) {
			b.spec.Mounts = append(b.spec.Mounts, m)
		}
	}
	var binds []specs.Mount
	shared, err := b.podMounts(wanted)
	if err != nil {
		return err
	}
	binds = append(binds, shared...)
	volumes, err := b.volumes(ctx, wanted)
	if err != nil {
		return err
	}
	binds = append(binds, volumes...)
	for i, m := range b.container().Mounts {
		bind, err := b.bind(ctx, i, m)
		if err != nil {
			return err
		}
		binds = append(binds, bind)
	}
	stage.Enter(ctx, "write bundle")
	sort.SliceStable(binds, func(i, j int) bool { return depth(binds[i].Destination) < depth(binds[j].Destination) })
	b.spec.Mounts = append(b.spec.Mounts, binds...)
	return nil
}

// overProc refuses what would hide /proc: nothing could be run in the container.
func overProc(ctx context.Context, field string, m pod.Mount) error {
	if path.Clean(m.ContainerPath) != "/proc" {
		return nil
	}
	proc, err := hostpath.Look(ctx, m.HostPath, func() (bool, error) {
		var st unix.Statfs_t
		return unix.Statfs(m.HostPath, &st) == nil && st.Type == unix.PROC_SUPER_MAGIC, nil
	})
	if err != nil {
		return err
	}
	if !proc {
		return invalid(field, "is /proc, and host_path %q is no proc file system; mount it elsewhere", m.HostPath)
	}
	return nil
}

func depth(p string) int { return strings.Count(p, "/") }

// kernelMounts are what every container has. A privileged one may write to
// /sys and to the cgroups.
func (b *build) kernelMounts(ctx context.Context) []specs.Mount {
	access := "ro"
	if b.security().Privileged {
		access = "rw"
	}
	out := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=" + mapping.TTYGroup(b.pod().UserNamespace())}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		mapping.Sys(b.pod(), access, b.req.Handler.Features.RecursiveReadOnlyMounts),
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: b.cgroupOptions(ctx, access)},
	}
	if b.privateIPC() {
		out = append(out, specs.Mount{Destination: devShm, Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"}})
	}
	return out
}

// cgroupOptions keep the options of the host's mount where a container sees the
// host's cgroups: cgroup v2 is one file system, and mounting it once more
// without them would take them from the host.
func (b *build) cgroupOptions(ctx context.Context, access string) []string {
	options := []string{"nosuid", "noexec", "nodev", "relatime", access}
	own := slices.ContainsFunc(b.spec.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.CgroupNamespace })
	if !b.cfg.Host.Unified || own {
		return options
	}
	info, err := hostpath.MountOf(ctx, "/sys/fs/cgroup")
	if err != nil {
		return options
	}
	for opt := range strings.SplitSeq(info.VFSOptions, ",") {
		if slices.Contains([]string{"nsdelegate", "memory_recursiveprot", "favordynmods", "memory_localevents", "memory_hugetlb_accounting", "pids_localevents"}, opt) {
			options = append(options, opt)
		}
	}
	return options
}

// podMounts are the files and /dev/shm that the containers of a pod share.
// They have the pod's label; what a container with another one mounts becomes
// readable for all levels, so that nobody loses it.
func (b *build) podMounts(wanted map[string]bool) ([]specs.Mount, error) {
	var out []specs.Mount
	add := func(source, dest string, readOnly bool) error {
		if wanted[dest] {
			return nil
		}
		if _, err := os.Stat(source); errors.Is(err, fs.ErrNotExist) {
			return nil // made by something else for this kind of pod
		} else if err != nil {
			return fmt.Errorf("look at the pod's %s: %w", dest, err)
		}
		access := "rw"
		if readOnly {
			access = "ro"
		}
		out = append(out, specs.Mount{Destination: dest, Type: "bind", Source: source, Options: []string{"rbind", "rprivate", access}})
		if source == devShm || b.req.Labels.Mount == b.req.Record.Labels.Mount {
			return nil // the node's own is not ours to label
		}
		return b.relabel(source, true)
	}
	if dir := b.req.Record.Sandbox.FilesDir(); dir != "" {
		for _, f := range []struct{ name, dest string }{
			{pod.FileHostname, "/etc/hostname"}, {pod.FileHosts, "/etc/hosts"}, {pod.FileResolvConf, "/etc/resolv.conf"},
		} {
			if err := add(filepath.Join(dir, f.name), f.dest, b.security().ReadOnlyRootfs); err != nil {
				return nil, err
			}
		}
	}
	if b.privateIPC() {
		return out, nil
	}
	shm := b.req.Record.Sandbox.Shm
	if shm == "" {
		shm = devShm
	}
	return out, add(shm, devShm, false)
}

// volumes are the anonymous directories of the image's VOLUMEs.
func (b *build) volumes(ctx context.Context, wanted map[string]bool) ([]specs.Mount, error) {
	if err := hostile.Volumes(b.req.Image.Volumes); err != nil {
		return nil, err
	}
	var out []specs.Mount
	seen := map[string]bool{}
	uid, gid := b.pod().Root()
	for _, v := range b.req.Image.Volumes {
		dest := path.Join("/", v)
		if wanted[dest] || seen[dest] {
			continue
		}
		if dest == "/" || strings.ContainsRune(dest, 0) || slices.ContainsFunc(kernelMounts, func(m string) bool { return under(dest, m) }) {
			b.warn("the image's volume %q is left out: no folder of the image can be there", v)
			continue
		}
		seen[dest] = true
		sum := sha256.Sum256([]byte(dest))
		dir := filepath.Join(b.volumesDir(string(b.req.Container.ID)), hex.EncodeToString(sum[:8]))
		image := volume.Image{Root: b.req.Rootfs, Name: dest, UID: uid, GID: gid}
		if err := volume.Make(ctx, image, dir); err != nil {
			return nil, err
		}
		if err := b.relabel(dir, false); err != nil {
			return nil, err
		}
		out = append(out, specs.Mount{Destination: dest, Type: "bind", Source: dir, Options: []string{"rbind", "rprivate", "rw"}})
	}
	return out, nil
}

// bind is one mount of the request.
func (b *build) bind(ctx context.Context, index int, m pod.Mount) (specs.Mount, error) {
	field := fmt.Sprintf("mounts[%d]", index)
	fail := func(err error) (specs.Mount, error) { return specs.Mount{}, err }
	if err := mapping.Mount(field, m, b.pod().UserNamespace()); err != nil {
		return fail(err)
	}
	if m.Image != nil {
		return b.imageVolume(ctx, field, m)
	}
	source, err := b.source(ctx, field, m)
	if err != nil {
		return fail(err)
	}
	propagation, err := b.propagation(ctx, field, source, m)
	if err != nil {
		return fail(err)
	}
	access, err := b.access(field, m)
	if err != nil {
		return fail(err)
	}
	options, err := optionsOf(field, m, propagation, access)
	if err != nil {
		return fail(err)
	}
	if m.SELinuxRelabel {
		relabel := func() (any, error) { return nil, b.relabel(source, false) }
		if _, err := hostpath.Look(ctx, source, relabel); err != nil {
			return fail(fmt.Errorf("%s.host_path: %w", field, err))
		}
	}
	if source, err = b.mapped(ctx, index, source, m); err != nil {
		return fail(fmt.Errorf("%s.host_path: %w", field, err))
	}
	return specs.Mount{Destination: path.Clean(m.ContainerPath), Type: "bind", Source: source, Options: options}, nil
}

// mountOptions are what a request may add. They only ever take something away:
// "suid" and its like would undo what the node's administrator has set.
var mountOptions = []string{"nosuid", "nodev", "noexec", "noatime", "nodiratime", "relatime", "strictatime", "nosymfollow"}

// optionsOf are those of a bind mount, and then what the request adds.
func optionsOf(field string, m pod.Mount, propagation, access string) ([]string, error) {
	options := []string{"rbind", propagation, access}
	for i, o := range m.Options {
		if !slices.Contains(mountOptions, o) {
			return nil, invalid(fmt.Sprintf("%s.mount_options[%d]", field, i), "%q is none of %s", o, strings.Join(mountOptions, ", "))
		}
		options = append(options, o)
	}
	return options, nil
}

// source is where the mount comes from, with its links followed on the host. A
// path that is missing becomes a folder, as containerd has it and pods rely on.
func (b *build) source(ctx context.Context, field string, m pod.Mount) (string, error) {
	if !filepath.IsAbs(m.HostPath) || strings.ContainsRune(m.HostPath, 0) {
		return "", invalid(field+".host_path", "%q is not an absolute path", m.HostPath)
	}
	resolved, err := hostpath.Resolve(ctx, m.HostPath)
	if err != nil {
		return "", fmt.Errorf("%s.host_path %s: %w", field, m.HostPath, err)
	}
	return resolved, nil
}

// access is "rw", "ro", or "rro" for read-only down to the last mount below.
func (b *build) access(field string, m pod.Mount) (string, error) {
	switch {
	case !m.RecursiveReadOnly && m.ReadOnly:
		return "ro", nil
	case !m.RecursiveReadOnly:
		return "rw", nil
	case !m.ReadOnly:
		return "", invalid(field+".recursive_read_only", "needs readonly to be set")
	case m.Propagation != pod.PropagationPrivate:
		return "", invalid(field+".recursive_read_only", "needs private propagation, and propagation is %s", m.Propagation)
	case !b.req.Handler.Features.RecursiveReadOnlyMounts:
		return "", unsupported(field+".recursive_read_only", "is not possible with handler %s on this kernel; its features do not have it", b.req.Handler.Name)
	}
	return "rro", nil
}
