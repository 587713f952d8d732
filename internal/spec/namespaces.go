package spec

import (
	"context"
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/spec/host"
	"fairlead.run/internal/spec/mapping"
)

// namespaces joins the pod's and makes the container's own. Which the pod has
// is the pod's to say: a container cannot get at the node's by asking alone.
func (b *build) namespaces(context.Context) error {
	if err := mapping.Same(b.security().Namespaces.User, b.pod().UserNamespace()); err != nil {
		return err
	}
	if err := b.userNamespace(); err != nil {
		return err
	}
	b.addNamespace(specs.MountNamespace, "")
	if err := b.network(); err != nil {
		return err
	}
	if err := b.ipc(); err != nil {
		return err
	}
	if ns := b.req.Record.Sandbox.UTSNS; ns != "" {
		b.addNamespace(specs.UTSNamespace, ns)
	}
	if err := b.pid(); err != nil {
		return err
	}
	// A namespace of its own hides the rest of the tree. On cgroup v1 peers
	// make none, and images of that time expect that; and who is privileged may
	// see the host's tree.
	if b.cfg.Host.Unified && !b.security().Privileged {
		b.addNamespace(specs.CgroupNamespace, "")
	}
	return nil
}

func (b *build) addNamespace(t specs.LinuxNamespaceType, path string) {
	b.spec.Linux.Namespaces = append(b.spec.Linux.Namespaces, specs.LinuxNamespace{Type: t, Path: path})
}

const namespaceOptions = "linux.security_context.namespace_options."

// nodeOnlyWithPod refuses a container that wants the node's namespace while its
// pod has one of its own.
func nodeOnlyWithPod(field string, container, sandbox pod.NamespaceMode) error {
	if container == pod.NamespaceNode && sandbox != pod.NamespaceNode {
		return invalid(namespaceOptions+field, "is NODE, but the pod's own %s%s is not; set it there too", namespaceOptions, field)
	}
	return nil
}

func (b *build) network() error {
	own, pods := b.security().Namespaces.Network, b.pod().Security.Namespaces.Network
	if err := nodeOnlyWithPod("network", own, pods); err != nil {
		return err
	}
	if own == pod.NamespaceContainer || own == pod.NamespaceTarget {
		return unsupported(namespaceOptions+"network", "is %s; containers of a pod share its network", own)
	}
	if pods == pod.NamespaceNode {
		return nil
	}
	return b.join(specs.NetworkNamespace, b.req.Record.Sandbox.NetNS)
}

func (b *build) ipc() error {
	own, pods := b.security().Namespaces.IPC, b.pod().Security.Namespaces.IPC
	if err := nodeOnlyWithPod("ipc", own, pods); err != nil {
		return err
	}
	switch {
	case own == pod.NamespaceTarget:
		return unsupported(namespaceOptions+"ipc", "is %s; only the PID namespace has a target", own)
	case b.privateIPC():
		b.addNamespace(specs.IPCNamespace, "")
		return nil
	case pods == pod.NamespaceNode:
		return nil
	}
	return b.join(specs.IPCNamespace, b.req.Record.Sandbox.IPCNS)
}

// privateIPC says whether the container shares neither System V IPC nor
// /dev/shm with anybody.
func (b *build) privateIPC() bool {
	return b.security().Namespaces.IPC == pod.NamespaceContainer || b.pod().Security.Namespaces.IPC == pod.NamespaceContainer
}

func (b *build) join(t specs.LinuxNamespaceType, path string) error {
	if path == "" {
		return fmt.Errorf("join the %s namespace of pod %s: its record names none: %w", t, b.req.Record.ID.Short(), errdefs.ErrInternal)
	}
	b.addNamespace(t, path)
	return nil
}

func (b *build) pid() error {
	own, pods := b.security().Namespaces.PID, b.pod().Security.Namespaces.PID
	if err := nodeOnlyWithPod("pid", own, pods); err != nil {
		return err
	}
	switch own {
	case pod.NamespaceContainer:
		b.addNamespace(specs.PIDNamespace, "")
		return nil
	case pod.NamespaceNode:
		return nil
	case pod.NamespaceTarget:
		return b.targetPID()
	case pod.NamespacePod:
	default:
		return invalid(namespaceOptions+"pid", "%q is not known", own)
	}
	switch {
	case pods == pod.NamespaceNode:
		return nil
	case b.req.Record.Sandbox.PIDNS == "" && pods != pod.NamespacePod:
		return invalid(namespaceOptions+"pid", "is POD, but the pod was made without a PID namespace to share; set the pod's own %spid to POD, or the container's to CONTAINER", namespaceOptions)
	}
	return b.join(specs.PIDNamespace, b.req.Record.Sandbox.PIDNS)
}

// targetPID joins the processes of another container of the pod.
func (b *build) targetPID() error {
	id := b.security().Namespaces.TargetID
	if id == "" {
		return invalid(namespaceOptions+"target_id", "is empty, and pid is TARGET")
	}
	if b.req.Handler.OwnKernel {
		return unsupported(namespaceOptions+"pid", "is TARGET; the processes of a container in a sandbox of handler %s cannot be joined one by one", b.req.Handler.Name)
	}
	target := b.req.Record.Container(pod.ContainerID(id))
	if target == nil {
		return fmt.Errorf("%starget_id: pod %s has no container %s: %w", namespaceOptions, b.req.Record.ID.Short(), id, errdefs.ErrNotFound)
	}
	if target.State != pod.Running || target.Process == nil {
		return fmt.Errorf("%starget_id: container %s is %s, and only a running one has processes to join: %w", namespaceOptions, target.ID.Short(), target.State, errdefs.ErrPrecondition)
	}
	if start, err := host.StartTime(target.Process.PID); err != nil || start != target.Process.StartTime {
		return fmt.Errorf("%starget_id: the process of container %s is gone: %w", namespaceOptions, target.ID.Short(), errdefs.ErrPrecondition)
	}
	b.addNamespace(specs.PIDNamespace, fmt.Sprintf("/proc/%d/ns/pid", target.Process.Inside()))
	return nil
}
