package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.run/test/bench/arena"
	"fairlead.run/test/e2e/machine"
	"fairlead.run/test/images"
)

// NodeName is the name of the only node.
const NodeName = "e2e"

// Config says what a cluster is made of.
type Config struct {
	Arena arena.Arena
	// Programs is the folder of the Kubernetes programs, as make e2e builds them.
	Programs string
	// Specs is the name of the program there that has upstream's specs. Without it the
	// registry has no images but those that are pushed.
	Specs string
	// Fairlead is the folder of fairlead and fairlead-monitor.
	Fairlead string
	// Peers is the folder of containerd, its shim and its runc, or of CRI-O, pinns and conmon.
	Peers string
	// Output is the folder for what all programs say.
	Output string
	// Runtime is what the kubelet uses. Without it there is no node, and whoever starts
	// the cluster adds some.
	Runtime Runtime
	// Agent is what makes the machine a node; empty is the kubelet.
	Agent Agent
	// Handler is the default handler, runc or crun.
	Handler string
	// Guest is the program that runs a command in a virtual machine, test/guest/guest,
	// where the node is to be one. Without it the node is this machine.
	Guest string
	// APIServer are further flags of the API server.
	APIServer []string
	// Systemd says that systemd makes the cgroups, which takes a guest.
	Systemd bool
	// Patience is how long a program may take to start or to end, and an order to a guest.
	// It decides nothing but when to give up.
	Patience time.Duration
}

// Cluster is one that runs.
type Cluster struct {
	// Kubeconfig is the file of an administrator.
	Kubeconfig string
	// Daemon is Fairlead, containerd or CRI-O.
	Daemon *Process
	// Kubelet is the kubelet, or the agent in its place.
	Kubelet *Process
	// APIServer is kube-apiserver.
	APIServer *Process

	cfg       Config
	here      place // for all that is not the node
	node      place
	ca        *authority
	registry  *images.Registry
	processes []*Process // in the order of their starts
}

// Start starts a cluster and waits until its node is ready.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	c := &Cluster{cfg: cfg, here: place{
		Machine: machine.Local(cfg.Patience), address: HostAddress, disk: cfg.Arena.Dir, memory: cfg.Arena.Memory,
		cgroup: cfg.Arena.Cgroup, unified: unified(),
	}}
	c.node = c.here
	if cfg.Guest != "" {
		c.node = guest
		c.node.systemd = cfg.Systemd
	}
	type step struct {
		what string
		do   func(context.Context) error
	}
	steps := []step{
		{"prepare the node's file systems", func(context.Context) error { return c.fileSystems() }},
		{"prepare the node's network", func(context.Context) error { return c.network() }},
		{"make certificates", func(context.Context) error { return c.certificates() }},
		{"make images", c.images},
		{"start the control plane", c.controlPlane},
	}
	if cfg.Runtime != "" {
		steps = append(steps, step{"start the node's machine", c.machine}, step{"start the runtime", c.runtime}, step{"start the node agent", c.agent})
	}
	for _, step := range steps {
		if err := step.do(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", step.what, err), c.Stop())
		}
	}
	return c, nil
}

// Stop ends all programs, the last one first. What the node's pods were is ended
// with the arena.
func (c *Cluster) Stop() error {
	failed := []error{c.leaveGuest()}
	for _, p := range slices.Backward(c.processes) {
		failed = append(failed, p.Kill())
	}
	if c.registry != nil {
		c.registry.Close()
	}
	return errors.Join(failed...)
}

// Kubectl runs kubectl as an administrator and returns what it wrote.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.KubectlInput(ctx, "", args...)
}

// KubectlInput is Kubectl with input.
func (c *Cluster) KubectlInput(ctx context.Context, input string, args ...string) (string, error) {
	cmd := c.KubectlCommand(ctx, args...)
	var out, failed bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &failed
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(failed.String()))
	}
	return out.String(), nil
}

// KubectlCommand is kubectl, to be started.
func (c *Cluster) KubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.program("kubectl"), args...)
	cmd.Env = c.Environment()
	return cmd
}

// Environment is what a program needs to be a client of the cluster.
func (c *Cluster) Environment() []string { return append(c.environment(c.here), "HOME="+c.here.memory) }

// User is the kubeconfig of a user, whose certificate it makes. NAME is that of files.
func (c *Cluster) User(name, user, group string) (kubeconfig string, err error) {
	return c.ca.client(name, user, group)
}

// Mirror is what hosts.toml says to have every pull sent to the registry of the cluster.
func (c *Cluster) Mirror() string { return fmt.Sprintf(mirror, c.registry.Host()) }

// Link is the network that reaches the API server and the registry at HostAddress.
const Link = "node0"

// Machine is the node's.
func (c *Cluster) Machine() machine.Machine { return c.node }

// Unified says whether the node has cgroup v2 alone.
func (c *Cluster) Unified() bool { return c.node.unified }

// fileSystems makes this mount namespace look like a freshly started node: /run
// is empty, and what is written to /etc and /var is the cluster's own.
func (c *Cluster) fileSystems() error {
	if err := os.MkdirAll(c.cfg.Output, 0o755); err != nil {
		return err
	}
	memory := c.cfg.Arena.Memory
	upper, work := filepath.Join(memory, "etc"), filepath.Join(memory, "etc.work")
	for _, dir := range []string{upper, work, c.varLib(), c.varLog(), filepath.Join(memory, "proc")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
		options              string
	}{
		{"e2e", "/etc", "overlay", 0, "lowerdir=/etc,upperdir=" + upper + ",workdir=" + work},
		{"e2e", "/run", "tmpfs", 0, "mode=755"},
		{c.varLib(), "/var/lib", "", unix.MS_BIND, ""},
		{c.varLog(), "/var/log", "", unix.MS_BIND, ""},
		// For user namespaces: the kernel lets them mount a /proc only if there is one with nothing over it.
		{"proc", filepath.Join(memory, "proc"), "proc", 0, ""},
		{"", "/", "", unix.MS_SHARED | unix.MS_REC, ""},
	} {
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.options); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	return c.shieldKernel()
}

// shieldKernel keeps the kubelet from changing settings of the whole machine: it
// finds the values that it wants in files over them.
func (c *Cluster) shieldKernel() error {
	for name, value := range map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0",
		"kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
	} {
		stand := filepath.Join(c.cfg.Arena.Memory, "sysctl", name)
		if err := write(stand, value+"\n"); err != nil {
			return err
		}
		if err := unix.Mount(stand, filepath.Join("/proc/sys", name), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("shield the kernel's %s from the kubelet: %w", name, err)
		}
	}
	return nil
}

func (c *Cluster) varLib() string { return filepath.Join(c.cfg.Arena.Dir, "varlib") }
func (c *Cluster) varLog() string { return filepath.Join(c.cfg.Arena.Dir, "varlog") }

// network gives this machine an address: the kubelet and the API server refuse to
// be at a loopback address alone. A guest gets a device on the same network.
func (c *Cluster) network() error {
	link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: Link}}
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("add a link: %w", err)
	}
	address := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(HostAddress), Mask: net.CIDRMask(24, 32)}}
	if err := netlink.AddrAdd(link, address); err != nil {
		return fmt.Errorf("add the address %s: %w", HostAddress, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set the link up: %w", err)
	}
	everything := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	// Programs look for the node's address at the default route.
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Index, Dst: everything}); err != nil {
		return fmt.Errorf("add a default route: %w", err)
	}
	if c.cfg.Guest != "" {
		if err := guestNetwork(link); err != nil {
			return err
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}
