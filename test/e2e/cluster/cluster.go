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
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.run/test/bench/arena"
	"fairlead.run/test/images"
)

// NodeName is the name of the only node.
const NodeName = "e2e"

// Config says what a cluster is made of.
type Config struct {
	Arena arena.Arena
	// Programs is the folder of the Kubernetes programs, as make e2e builds them.
	Programs string
	// Specs is the name of the program there that has upstream's specs.
	Specs string
	// Fairlead is the folder of fairlead and fairlead-monitor.
	Fairlead string
	// Peers is the folder of containerd, its shim and its runc.
	Peers string
	// Output is the folder for what all programs say.
	Output string
	// Runtime is what the kubelet uses.
	Runtime Runtime
	// Handler is the default handler, runc or crun.
	Handler string
}

// Cluster is one that runs.
type Cluster struct {
	// Kubeconfig is the file of an administrator.
	Kubeconfig string
	// Daemon is Fairlead or containerd.
	Daemon *Process
	// Kubelet is the kubelet.
	Kubelet *Process

	cfg       Config
	ca        *authority
	registry  *images.Registry
	processes []*Process // in the order of their starts
}

// Start starts a cluster and waits until its node is ready.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	c := &Cluster{cfg: cfg}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"prepare the node's file systems", func(context.Context) error { return c.fileSystems() }},
		{"prepare the node's network", func(context.Context) error { return network() }},
		{"make certificates", func(context.Context) error { return c.certificates() }},
		{"make images", c.images},
		{"start the control plane", c.controlPlane},
		{"start the runtime", c.runtime},
		{"start the kubelet", c.kubelet},
	} {
		if err := step.do(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", step.what, err), c.Stop())
		}
	}
	return c, nil
}

// Stop ends all programs, the last one first. What the node's pods were is ended
// with the arena.
func (c *Cluster) Stop() error {
	var failed []error
	for i := len(c.processes) - 1; i >= 0; i-- {
		failed = append(failed, c.processes[i].Kill())
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
	cmd.Env = append(c.environment(), "HOME="+c.cfg.Arena.Memory)
	return cmd
}

// Environment is what a program needs to be a client of the cluster.
func (c *Cluster) Environment() []string { return append(c.environment(), "HOME="+c.cfg.Arena.Memory) }

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

// network gives the node an address: the kubelet and the API server refuse to be
// at a loopback address alone.
func network() error {
	link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "node0"}}
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("add a link: %w", err)
	}
	address := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(NodeAddress), Mask: net.CIDRMask(24, 32)}}
	if err := netlink.AddrAdd(link, address); err != nil {
		return fmt.Errorf("add the address %s: %w", NodeAddress, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set the link up: %w", err)
	}
	everything := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	// Programs look for the node's address at the default route.
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Index, Dst: everything}); err != nil {
		return fmt.Errorf("add a default route: %w", err)
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}
