package nri

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/pod"
)

// podView is a pod as plugins see it.
func podView(r *pod.Record) *api.PodSandbox {
	m := r.Config.Metadata
	out := &api.PodSandbox{
		Id: string(r.ID), Name: m.Name, Uid: m.UID, Namespace: m.Namespace,
		Labels: r.Config.Labels, Annotations: r.Config.Annotations, RuntimeHandler: r.Handler,
		Linux: &api.LinuxPodSandbox{
			PodOverhead: toNRI(r.Config.Overhead), PodResources: toNRI(r.Config.Resources),
			CgroupParent: r.Sandbox.Cgroup, CgroupsPath: r.Sandbox.Cgroup,
		},
	}
	if p := r.Sandbox.Pause; p != nil {
		out.Pid = uint32(p.Inside())
	}
	for _, ip := range r.Sandbox.IPs {
		out.Ips = append(out.Ips, ip.String())
	}
	for _, n := range []struct {
		kind specs.LinuxNamespaceType
		path string
	}{
		{specs.NetworkNamespace, r.Sandbox.NetNS},
		{specs.IPCNamespace, r.Sandbox.IPCNS},
		{specs.UTSNamespace, r.Sandbox.UTSNS},
		{specs.PIDNamespace, r.Sandbox.PIDNS},
	} {
		if n.path != "" {
			out.Linux.Namespaces = append(out.Linux.Namespaces, &api.LinuxNamespace{Type: string(n.kind), Path: n.path})
		}
	}
	return out
}

// containerView is a container as plugins see it. Without its spec, which goes
// before the container does, it has only what the record says. The library writes
// into what it is given.
func containerView(r *pod.Record, c *pod.Container, s *specs.Spec) *api.Container {
	out := &api.Container{
		Id: string(c.ID), PodSandboxId: string(r.ID), Name: c.Config.Metadata.Name, State: stateOf(c.State),
		Labels: maps.Clone(c.Config.Labels), Annotations: maps.Clone(c.Config.Annotations), Image: imageView(c),
		CreatedAt: nanoseconds(c.CreatedAt), StartedAt: nanoseconds(c.StartedAt), FinishedAt: nanoseconds(c.FinishedAt),
		ExitCode: c.ExitCode, StatusReason: c.Reason, StatusMessage: c.Message,
		Linux: &api.LinuxContainer{Resources: toNRI(c.Limits())},
	}
	if c.Process != nil && c.State == pod.Running {
		out.Pid = uint32(c.Process.Inside())
	}
	for _, d := range c.Config.CDIDevices {
		out.CDIDevices = append(out.CDIDevices, &api.CDIDevice{Name: d})
	}
	if s == nil {
		return out
	}
	out.Mounts, out.Hooks = api.FromOCIMounts(s.Mounts), api.FromOCIHooks(s.Hooks)
	if p := s.Process; p != nil {
		out.Args, out.Env = slices.Clone(p.Args), slices.Clone(p.Env)
		out.User = &api.User{Uid: p.User.UID, Gid: p.User.GID, AdditionalGids: p.User.AdditionalGids}
		for _, l := range p.Rlimits {
			out.Rlimits = append(out.Rlimits, &api.POSIXRlimit{Type: l.Type, Hard: l.Hard, Soft: l.Soft})
		}
		out.Linux.OomScoreAdj = api.Int(p.OOMScoreAdj)
		out.Linux.IoPriority, out.Linux.Scheduler = api.FromOCILinuxIOPriority(p.IOPriority), api.FromOCILinuxScheduler(p.Scheduler)
	}
	if l := s.Linux; l != nil {
		out.Linux.Namespaces, out.Linux.Devices = api.FromOCILinuxNamespaces(l.Namespaces), api.FromOCILinuxDevices(l.Devices)
		out.Linux.Resources = api.FromOCILinuxResources(l.Resources, nil)
		out.Linux.CgroupsPath, out.Linux.Sysctl = l.CgroupsPath, maps.Clone(l.Sysctl)
		if l.Seccomp != nil {
			out.Linux.SeccompPolicy = api.FromOCILinuxSeccomp(l.Seccomp)
		}
		out.Linux.NetDevices = api.FromOCILinuxNetDevices(l.NetDevices)
		if d := l.IntelRdt; d != nil {
			out.Linux.Rdt = &api.LinuxRdt{ClosId: api.String(d.ClosID), Schemata: api.RepeatedString(d.Schemata), EnableMonitoring: api.Bool(d.EnableMonitoring)}
		}
	}
	return out
}

// imageView names an image by a name, by the digest that its registry knows, and
// by that of its configuration.
func imageView(c *pod.Container) *api.Image {
	_, digest, _ := strings.Cut(c.Image.Ref, "@")
	name := c.Image.Name
	if name == "" {
		name = c.Config.Image.Image
	}
	return &api.Image{Name: name, Digest: digest, ConfigDigest: c.Image.ID}
}

func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func stateOf(s pod.State) api.ContainerState {
	switch s {
	case pod.Creating, pod.Created:
		return api.ContainerState_CONTAINER_CREATED
	case pod.Running:
		return api.ContainerState_CONTAINER_RUNNING
	case pod.Exited:
		return api.ContainerState_CONTAINER_STOPPED
	}
	return api.ContainerState_CONTAINER_UNKNOWN
}

// viewOf is a container that plugins are shown, also one that is still being
// created.
func (d *Driver) viewOf(r *pod.Record, c *pod.Container) *api.Container {
	d.mu.Lock()
	t := d.told[string(c.ID)]
	d.mu.Unlock()
	switch {
	case t.view != nil:
		return t.view
	case t.spec != nil:
		return containerView(r, c, t.spec)
	}
	return containerView(r, c, bundleSpec(c))
}

// bundleSpec reads what a container was made from; nil if it is gone.
func bundleSpec(c *pod.Container) *specs.Spec {
	if c.Bundle == "" {
		return nil
	}
	content, err := os.ReadFile(filepath.Join(c.Bundle, "config.json"))
	if err != nil {
		return nil
	}
	var s specs.Spec
	if json.Unmarshal(content, &s) != nil {
		return nil
	}
	return &s
}
