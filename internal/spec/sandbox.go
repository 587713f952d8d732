package spec

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/pod"
	"fairlead.run/internal/spec/origin"
)

// pauseID is the user and group of a pod's own process: nobody's.
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
	(*build).pauseNamespaces,
	(*build).pauseResources,
	(*build).pauseRootfs,
	(*build).seccomp,
	(*build).selinux,
	(*build).pauseAnnotations,
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
	// The process is like a container that asks for nothing.
	c := &pod.Container{ID: pod.ContainerID(r.ID)}
	c.Config.Security.Seccomp = &pod.Profile{Type: pod.ProfileRuntimeDefault}
	w := b.newBuild(pod.BundleRequest{Record: r, Container: c, Rootfs: filepath.Join(dir, "rootfs"), Handler: h, Labels: r.Labels})
	w.stopSignal = "SIGTERM"
	return b.write(ctx, string(r.ID), w, sandboxSteps)
}

func (b *build) pauseProcess(context.Context) error {
	b.spec.Root.Readonly = true
	adj, _, err := clampOOM(pauseOOM, b.cfg.Host)
	if err != nil {
		return err
	}
	uid, gid := uint32(pauseID), uint32(pauseID)
	if u := b.pod().UserNamespace(); u != nil { // which may end before
		uid, gid = min(uid, u.UIDs[0].Length-1), min(gid, u.GIDs[0].Length-1)
	}
	b.spec.Process = &specs.Process{
		User:            specs.User{UID: uid, GID: gid},
		Args:            []string{pausePath, "pause"},
		Env:             []string{"PATH=/"},
		Cwd:             "/",
		NoNewPrivileges: true,
		Capabilities:    &specs.LinuxCapabilities{},
		OOMScoreAdj:     &adj,
	}
	b.user = pod.User{UID: int64(uid), GID: int64(gid)}
	if b.req.Handler.SandboxProcess { // whose kernel does not know the name that the namespace has
		name, err := os.ReadFile(filepath.Join(b.req.Record.Sandbox.Dir, pod.FileHostname))
		b.spec.Hostname = strings.TrimSpace(string(name))
		return err
	}
	return nil
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
	if err := b.cgroup(ctx); err != nil || b.req.Handler.SandboxProcess {
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

func (b *build) pauseAnnotations(context.Context) error {
	out := allowed(b.pod().Annotations, b.req.Handler.PodAnnotations)
	origin.OfPod(out, b.req.Record)
	b.spec.Annotations = out
	return nil
}
