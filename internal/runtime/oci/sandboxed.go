package oci

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/sentry"
)

// gVisor is what runsc calls itself. It runs all containers of a pod inside one
// process, the sentry, which the pod's own process starts. A container has no
// process on the host, so a stand-in has its pid, its signals and its end.
const gVisor = "runsc"

// sandboxes says whether a runtime runs the containers of a pod in a sandbox.
func sandboxes(runtime string) bool { return runtime == gVisor }

func (h *Handler) sandboxed() bool { return sandboxes(h.runtime()) }

// goferNetwork is the flag for the network namespace of the processes that serve
// files to a sandbox. They use none.
const goferNetwork = "--gofer-network-namespace"

// flagsOf are the flags that a runtime gets besides those that all know, but for
// those that the definition's own arguments set.
func flagsOf(runtime string, args []string) []string {
	if runtime != gVisor {
		return nil
	}
	flags := []string{
		"--overlay2=none",     // what a container writes goes to its layer, which is measured and kept
		"--oci-seccomp",       // honour the filter, inside the sandbox too
		"--allow-suid",        // su and ping work as they do elsewhere, where privileges may grow at all
		goferNetwork + "=new", // otherwise it leaves one mounted in its root
	}
	return slices.DeleteFunc(flags, func(f string) bool {
		return slices.ContainsFunc(args, func(arg string) bool { return flagName(arg) == flagName(f) })
	})
}

// flagName is what a flag of Go is called, however it is written.
func flagName(flag string) string {
	name, _, _ := strings.Cut(strings.TrimLeft(flag, "-"), "=")
	return name
}

// The annotation of the bundle by which runsc knows the sandbox of a container.
const sandboxAnnotation = "io.kubernetes.cri.sandbox-id"

// inSandbox is the request that starts a container of a sandbox, or the sandbox.
func (h *Handler) inSandbox(r monitorv1.StartRequest, has *traces) monitorv1.StartRequest {
	argv := slices.Clone(r.Command)
	if at := slices.IndexFunc(has.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.NetworkNamespace }); at < 0 {
		// Else it would make a network of its own, and not share the node's.
		argv = slices.Insert(argv, slices.Index(argv, "--root"), "--network=host")
	} else if path := has.Linux.Namespaces[at].Path; path != "" {
		// The pod has one already, and to make another for each container takes time.
		if at := slices.Index(argv, goferNetwork+"=new"); at >= 0 {
			argv[at] = goferNetwork + "=" + path
		}
	}
	sandbox := sandboxOf(r.ID, has)
	if at := slices.Index(argv, "--pid-file"); sandbox != r.ID {
		r.Sandbox = sandbox
		// runsc would write the sandbox's, and a start that fails is killed by it.
		argv = slices.Delete(argv, at, at+2)
	}
	r.Command = append([]string{
		h.cfg.StandIn, "stand-in", "--root", h.tool.root, "--sandbox", sandbox, "--id", r.ID,
		"--pid-file", r.PIDFile, "--cgroup", r.Cgroup, "--",
	}, argv...)
	return r
}

func sandboxOf(id string, has *traces) string {
	if s := has.Annotations[sandboxAnnotation]; s != "" {
		return s
	}
	return id
}

// Together says that all containers of a pod run in the pod's own process.
func (h *Handler) Together() bool { return h.sandboxed() }

// socket is where the sandbox of a container takes orders.
func (h *Handler) socket(id string) (string, error) {
	has, err := readAs[traces](h.folder(id))
	if err != nil {
		return "", err
	}
	return sentry.Socket(h.tool.root, sandboxOf(id, has))
}

// orderLimit bounds an order that a sandbox carries out at once, unless it hangs.
const orderLimit = 800 * time.Millisecond

// killSandboxed sends a signal to a container in a sandbox. A sandbox that is
// gone has taken its containers along; the stand-in says so. With one that hangs,
// the stand-in is all that can be ended; Delete then ends the rest.
func (h *Handler) killSandboxed(ctx context.Context, c *pod.Container, sig unix.Signal, all bool) error {
	bounded, cancel := context.WithTimeout(ctx, orderLimit)
	defer cancel()
	socket, err := h.socket(string(c.ID))
	if err == nil {
		err = sentry.Signal(bounded, socket, string(c.ID), sig, all)
	}
	switch {
	case err == nil, sentry.Refused(err), errors.Is(err, errdefs.ErrNotFound):
		return nil
	case all && sig == sigKill:
		return errors.Join(h.killAll(ctx, c, sig), err)
	}
	return err
}

// Forward connects to a port on the localhost of a pod in a sandbox.
func (h *Handler) Forward(ctx context.Context, pod string, port uint16) (net.Conn, error) {
	if h.tool.adapter != nil {
		return nil, fmt.Errorf("forward port %d: %w", port, errNotForwarded)
	}
	socket, err := h.socket(pod)
	if err != nil {
		return nil, err
	}
	conn, err := sentry.Forward(ctx, socket, pod, port)
	if sentry.Refused(err) {
		err = fmt.Errorf("nothing listens there: %w: %w", err, errdefs.ErrUnavailable)
	}
	return conn, err
}

// deleteSandboxed ends a container inside its sandbox and makes runsc forget it. A
// sandbox that dies meanwhile takes no orders; once it is dead none are needed.
//
// A runsc that deletes another container of the pod at the same time looks at this
// one, and makes its lock again.
func (h *Handler) deleteSandboxed(ctx context.Context, id string) error {
	var err error
	for range 2 {
		if filepath.Ext(stateOf(h.tool.root, id)) != stateExt {
			return removeStateFiles(h.tool.root, id) // there are only locks
		}
		err = h.runDelete(ctx, "--force", id)
		if err == nil || saysNotThere(err) {
			return removeStateFiles(h.tool.root, id)
		}
		if errors.Is(err, errdefs.ErrDeadline) {
			return h.deleteHung(id, err)
		}
	}
	return err
}

// runsc keeps files ID_sandbox:SANDBOX.EXT of a container, where runc and crun have
// a folder ID. One of them has the state; the others are locks.
const (
	stateOfSandbox = "_sandbox:"
	stateExt       = ".state"
)

// stateOf is what a runtime keeps of a container that runs.
func stateOf(root, id string) string {
	files, _ := stateFiles(root, id) // an error is one of the pattern
	for _, f := range files {
		if filepath.Ext(f) == stateExt {
			return f
		}
	}
	return filepath.Join(root, id)
}

func stateFiles(root, id string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(root, id+stateOfSandbox+"*"))
	if err != nil {
		return nil, fmt.Errorf("look for what the runtime keeps of container %s: %w", id, err)
	}
	return files, nil
}

func removeStateFiles(root, id string) error {
	files, err := stateFiles(root, id)
	for _, f := range files {
		err = errors.Join(err, ignoreMissing(os.Remove(f)))
	}
	return err
}
