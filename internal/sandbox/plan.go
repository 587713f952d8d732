package sandbox

import (
	"fmt"
	"os"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// plan decides which namespaces a pod gets, and refuses what it cannot have. A
// pod on the node's network has the node's name too: that is how it is known
// there.
func (d *Driver) plan(c *pod.Config) (*plan, error) {
	n := c.Security.Namespaces
	if err := checkUser(n); err != nil {
		return nil, err
	}
	// A cgroup of the caller's has limits already, and these have to be right all the same.
	if _, _, err := limitsOf(atCreation, c); err != nil {
		return nil, err
	}
	flags := 0
	if c.UserNamespace() != nil {
		flags |= unix.CLONE_NEWUSER
	}
	switch n.Network {
	case pod.NamespacePod:
		flags |= unix.CLONE_NEWNET | unix.CLONE_NEWUTS
	case pod.NamespaceNode:
	default:
		return nil, fmt.Errorf("linux.security_context.namespace_options.network of a pod is POD or NODE, not %q: %w", n.Network, errdefs.ErrInvalidArgument)
	}
	switch n.IPC {
	case pod.NamespacePod:
		flags |= unix.CLONE_NEWIPC
	case pod.NamespaceNode, pod.NamespaceContainer:
	default:
		return nil, fmt.Errorf("linux.security_context.namespace_options.ipc of a pod is POD, CONTAINER or NODE, not %q: %w", n.IPC, errdefs.ErrInvalidArgument)
	}
	if n.PID == pod.NamespaceTarget {
		return nil, fmt.Errorf("linux.security_context.namespace_options.pid of a pod is POD, CONTAINER or NODE, not %q: %w", n.PID, errdefs.ErrInvalidArgument)
	}
	p := &plan{user: c.UserNamespace()}
	for _, k := range kinds {
		if flags&k.flag != 0 {
			p.kinds = append(p.kinds, k)
		}
	}
	var err error
	if p.hostname, err = hostname(c); err != nil {
		return nil, err
	}
	p.sysctls, err = sysctls(d.cfg.Sysctls, c.Sysctls, flags)
	return p, err
}

// checkUser refuses user namespaces that cannot be. As in Kubernetes, a pod with
// one may be on the node's network, and uses no other namespace of the node: in
// there its root could do less than it believes, and nothing that it can with its own.
func checkUser(n pod.Namespaces) error {
	const options = "linux.security_context.namespace_options."
	if n.User == nil {
		return nil
	}
	if err := n.User.Check(options + "userns_options"); err != nil {
		return err
	}
	for name, mode := range map[string]pod.NamespaceMode{"pid": n.PID, "ipc": n.IPC} {
		if n.User.Mode == pod.NamespacePod && mode == pod.NamespaceNode {
			return fmt.Errorf("%suserns_options asks for a user namespace of the pod, and %s is NODE; a pod has both of its own, or neither (hostUsers: true): %w", options, name, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

// maxHostname is __NEW_UTS_LEN of the kernel.
const maxHostname = 64

// hostname is the pod's, or the node's where the pod has none.
func hostname(c *pod.Config) (string, error) {
	if c.Hostname == "" || c.HostNetwork() {
		h, err := os.Hostname()
		if err != nil {
			return "", fmt.Errorf("read the host's name: %w", err)
		}
		return h, nil
	}
	if len(c.Hostname) > maxHostname {
		return "", fmt.Errorf("hostname %q has %d bytes, and the kernel takes %d: %w", c.Hostname, len(c.Hostname), maxHostname, errdefs.ErrInvalidArgument)
	}
	if strings.ContainsFunc(c.Hostname, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == '/' || r == '#' }) {
		return "", fmt.Errorf("hostname %q has a space, /, # or control character in it: %w", c.Hostname, errdefs.ErrInvalidArgument)
	}
	return c.Hostname, nil
}
