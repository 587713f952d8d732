package spec

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/pod"
	"fairlead.run/internal/spec/mapping"
	"fairlead.run/internal/spec/origin"
)

// pauseID is the user and group of a pod's own process where the pod says nothing:
// nobody's.
const pauseID = 65535

// pausePath is where the monitor's binary is mounted in the pod's own process.
const pausePath = "/pause"

// pauseOOM is the score that kubelet's documentation gives pause processes:
// the kernel kills a pod's containers before what holds them together.
const pauseOOM = -998

// pauseMasked and pauseReadOnly close what a process that only waits has no
// business with.
var (
	pauseMasked   = []string{"/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/sched_debug", "/proc/scsi"}
	pauseReadOnly = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

var sandboxSteps = []step{
	(*build).pauseProcess,
	(*build).pauseIdentity,
	(*build).pauseNamespaces,
	(*build).pauseResources,
	(*build).pauseRootfs,
	(*build).pauseSeccomp,
	(*build).appArmor,
	(*build).selinux,
	(*build).pauseAnnotations,
}

// CheckSandbox refuses profiles and users that the pod's own process could not have,
// also where there is none: whoever names a profile that is not there has to hear
// of it before containers do without.
func (b *Builder) CheckSandbox(ctx context.Context, r *pod.Record, h pod.HandlerInfo) error {
	w := b.newBuild(pauseRequest(r, h))
	steps := []step{(*build).pauseIdentity}
	if isLocal(w.security().Seccomp) {
		steps = append(steps, (*build).seccomp)
	}
	if isLocal(w.security().AppArmor) {
		steps = append(steps, (*build).appArmor)
	}
	return w.run(ctx, steps)
}

func isLocal(p *pod.Profile) bool { return p != nil && p.Type == pod.ProfileLocalhost }

// pauseRequest is for the pod's own process, which is like a container that asks
// for what the pod asks for. It is filtered also where nothing is said, and in pods
// that may have privileged containers.
func pauseRequest(r *pod.Record, h pod.HandlerInfo) pod.BundleRequest {
	c := &pod.Container{ID: pod.ContainerID(r.ID)}
	of := r.Config.Security
	c.Config.Security = pod.Security{Identity: of.Identity, Seccomp: of.Seccomp, AppArmor: of.AppArmor}
	if of.Seccomp == nil {
		c.Config.Security.Seccomp = &pod.Profile{Type: pod.ProfileRuntimeDefault}
	}
	return pod.BundleRequest{Record: r, Container: c, Handler: h, Labels: r.Labels}
}

// WriteSandbox makes the bundle of the pod's own process: the pause program of
// fairlead-monitor, alone in an empty root file system and with no privileges.
// It holds the pod's PID namespace, and is what sandboxing runtimes start their
// sandbox from.
func (b *Builder) WriteSandbox(ctx context.Context, r *pod.Record, h pod.HandlerInfo) (pod.Bundle, error) {
	out, err := b.writeSandbox(ctx, r, h)
	if err != nil {
		return pod.Bundle{}, fmt.Errorf("write the bundle of pod %s: %w", r.ID.Short(), err)
	}
	return out, nil
}

func (b *Builder) writeSandbox(ctx context.Context, r *pod.Record, h pod.HandlerInfo) (pod.Bundle, error) {
	dir, err := b.dir(string(r.ID))
	if err != nil {
		return pod.Bundle{}, err
	}
	req := pauseRequest(r, h)
	req.Rootfs = filepath.Join(dir, "rootfs")
	w := b.newBuild(req)
	w.stopSignal = "SIGTERM"
	return b.write(ctx, string(r.ID), w, sandboxSteps)
}

func (b *build) pauseProcess(context.Context) error {
	b.spec.Root.Readonly = true
	adj, _, err := clampOOM(pauseOOM, b.cfg.Host)
	if err != nil {
		return err
	}
	b.spec.Process = &specs.Process{
		Args:            []string{pausePath, "pause"},
		Env:             []string{"PATH=/"},
		Cwd:             "/",
		NoNewPrivileges: true,
		Capabilities:    &specs.LinuxCapabilities{},
		OOMScoreAdj:     &adj,
	}
	if b.req.Handler.OwnKernel { // which does not know the name that the namespace has
		name, err := os.ReadFile(filepath.Join(b.req.Record.Sandbox.FilesDir(), pod.FileHostname))
		b.spec.Hostname = strings.TrimSpace(string(name))
		return err
	}
	return nil
}

// pauseIdentity is nobody, unless the pod says who.
func (b *build) pauseIdentity(context.Context) error {
	id := b.security().Identity
	if err := checkIdentity(id); err != nil {
		return err
	}
	w, u := who{uid: pauseID, gid: pauseID}, b.pod().UserNamespace()
	if u != nil { // which may end before
		if err := u.Check("linux.security_context.namespace_options.userns_options"); err != nil {
			return err
		}
		w.uid, w.gid = min(w.uid, u.UIDs[0].Length-1), min(w.gid, u.GIDs[0].Length-1)
	}
	if id.UID != nil {
		w.uid = uint32(*id.UID)
	}
	if id.GID != nil {
		w.gid = uint32(*id.GID)
	}
	w.groups = []uint32{w.gid}
	for _, g := range id.SupplementalGroups {
		w.groups = append(w.groups, uint32(g))
	}
	b.setUser(w)
	return mapping.Process(w.uid, w.groups, u)
}

func (b *build) pauseNamespaces(context.Context) error {
	if err := b.userNamespace(); err != nil {
		return err
	}
	b.addNamespace(specs.MountNamespace, "")
	s := b.req.Record.Sandbox
	for _, ns := range []struct {
		t    specs.LinuxNamespaceType
		path string
	}{{specs.NetworkNamespace, s.NetNS}, {specs.IPCNamespace, s.IPCNS}, {specs.UTSNamespace, s.UTSNS}} {
		if ns.path != "" {
			b.addNamespace(ns.t, ns.path)
		}
	}
	if b.pod().Security.Namespaces.PID != pod.NamespaceNode {
		b.addNamespace(specs.PIDNamespace, "")
	}
	if b.cfg.Host.Unified {
		b.addNamespace(specs.CgroupNamespace, "")
	}
	return nil
}

func (b *build) pauseResources(ctx context.Context) error {
	// In a sandbox all containers run, within the limits of the pod's cgroup above.
	if err := b.cgroup(ctx); err != nil || b.req.Handler.OwnKernel {
		return err
	}
	b.spec.Linux.Resources = &specs.LinuxResources{
		Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: allAccess}},
		CPU:     &specs.LinuxCPU{Shares: ptr(uint64(2))}, // the least there is
	}
	return nil
}

// pauseRootfs makes the folder with what things are mounted on, because the
// runtime sees it read-only.
func (b *build) pauseRootfs(context.Context) error {
	if err := b.makeFolder(filepath.Dir(b.req.Rootfs)); err != nil {
		return err
	}
	for _, d := range []string{"proc", "dev", "sys", "etc"} {
		if err := os.MkdirAll(filepath.Join(b.req.Rootfs, d), 0o755); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(filepath.Join(b.req.Rootfs, pausePath), os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Chmod(b.req.Rootfs, 0o755); err != nil { // the process is not root
		return err
	}
	if err := b.relabel(b.req.Rootfs, false); err != nil {
		return err
	}
	info, err := os.Stat(b.cfg.Monitor)
	if err != nil {
		return fmt.Errorf("look for the pause program: %w", err)
	}
	if info.Mode().Perm()&0o001 == 0 {
		return fmt.Errorf("pause program %s is not executable for everybody (%s); chmod 755 it", b.cfg.Monitor, info.Mode().Perm())
	}
	b.spec.Mounts = []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=64k"}},
		{Destination: pausePath, Type: "bind", Source: b.cfg.Monitor, Options: []string{"bind", "rprivate", "ro", "nosuid", "nodev"}},
	}
	if shm := b.req.Record.Sandbox.Shm; shm != "" {
		b.spec.Mounts = append(b.spec.Mounts, specs.Mount{Destination: devShm, Type: "bind", Source: shm, Options: []string{"rbind", "rprivate", "ro", "nosuid", "nodev", "noexec"}})
	}
	b.spec.Linux.MaskedPaths = pauseMasked
	b.spec.Linux.ReadonlyPaths = pauseReadOnly
	return nil
}

// pauseSeccomp leaves out the default filter in a kernel of its own. That takes the
// sandbox as long to compile as a container's, and the pause program, which nobody
// else can tell what to do, only waits.
func (b *build) pauseSeccomp(ctx context.Context) error {
	if b.req.Handler.OwnKernel && !isLocal(b.security().Seccomp) {
		return nil
	}
	return b.seccomp(ctx)
}

func (b *build) pauseAnnotations(context.Context) error {
	out := allowed(b.pod().Annotations, b.req.Handler.PodAnnotations)
	origin.OfPod(out, b.req.Record)
	b.spec.Annotations = out
	return nil
}
