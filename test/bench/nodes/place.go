package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.run/test/bench/arena"
	"fairlead.run/test/bench/gauge"
	"fairlead.run/test/e2e/cluster"
	"fairlead.run/test/e2e/machine"
)

// node is a node of the cluster, in network and mount namespaces of its own.
type node struct {
	variant      string // as the report names it
	name, ip     string
	disk, memory string // its folders
	cgroup       string // above those of its pods
	socket       string // of its runtime; empty if that removes what is gone at once
	place        *arena.Place
	programs     []*machine.Process
	main         *machine.Process // whose mounts its helpers share
}

// newNode makes the namespaces of a node and connects them with the cluster. state is
// one of arena.StateFolders.
func newNode(a arena.Arena, n node, state string) (*node, error) {
	n.disk, n.memory, n.cgroup = filepath.Join(a.Dir, n.name), filepath.Join(a.Memory, state), filepath.Join(a.Cgroup, n.name)
	varLib := filepath.Join(n.disk, "varlib")
	for _, dir := range []string{varLib, n.memory} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	if err := cgroups(n.cgroup); err != nil {
		return nil, err
	}
	pid, release, err := hold(varLib)
	if err != nil {
		return nil, fmt.Errorf("make the namespaces of a node: %w", err)
	}
	defer release()
	if n.place, err = arena.PlaceOf(pid); err != nil {
		return nil, err
	}
	if err := connect(pid, n.name, n.ip); err != nil {
		return nil, errors.Join(fmt.Errorf("connect a node with the cluster: %w", err), n.place.Close())
	}
	return &n, nil
}

// hold makes the namespaces, which a process keeps until it is released: by then
// somebody has them open.
func hold(varLib string) (pid int, release func(), err error) {
	cmd := arena.Command(varLib, "/bin/sh", "-c", "echo made; read line")
	cmd.Stdout = nil // a pipe, and not the benchmark's
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, nil, err
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the process ends with its thread
		started <- cmd.Start()
		_ = cmd.Wait() // it ends when it is told to
	}()
	if err := <-started; err != nil {
		return 0, nil, err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return 0, nil, fmt.Errorf("the first process said %q: %w", line, err)
	}
	return cmd.Process.Pid, func() { _ = in.Close() }, nil
}

// connect puts a cable between the network of the cluster and that of a node.
func connect(pid int, name, ip string) error {
	bridge, err := netlink.LinkByName(cluster.Link)
	if err != nil {
		return err
	}
	const inside = "eth0"
	cable := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "to-" + name, MasterIndex: bridge.Attrs().Index}, PeerName: inside, PeerNamespace: netlink.NsPid(pid)}
	if err := netlink.LinkAdd(cable); err != nil {
		return fmt.Errorf("add a pair of links: %w", err)
	}
	if err := netlink.LinkSetUp(cable); err != nil {
		return fmt.Errorf("set the cluster's end up: %w", err)
	}
	return arena.InNetwork(pid, func() error {
		link, err := netlink.LinkByName(inside)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(ip), Mask: net.CIDRMask(24, 32)}}); err != nil {
			return fmt.Errorf("add the address %s: %w", ip, err)
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("set the node's end up: %w", err)
		}
		everything := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
		return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: everything, Gw: net.ParseIP(cluster.HostAddress)})
	})
}

// cgroups makes a cgroup in every hierarchy. The arena removes it.
func cgroups(name string) error {
	tops, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	if err != nil {
		return err
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		tops = []string{"/sys/fs/cgroup/cgroup.procs"}
	}
	for _, top := range tops {
		if err := os.MkdirAll(filepath.Join(filepath.Dir(top), name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// launch starts a program of a node.
func (n *node) launch(o options, argv ...string) (*machine.Process, error) {
	cmd := n.place.Command(argv...)
	path, err := exec.LookPath(cmd.Path)
	if err != nil {
		return nil, err
	}
	name := filepath.Base(argv[0])
	p, err := machine.Launch(machine.Program{
		Name: name, Argv: append([]string{path}, cmd.Args[1:]...), Output: filepath.Join(o.output, n.name+"-"+name+".log"),
		// containerd looks for its shim there, and Fairlead for runc.
		Env: append(cmd.Env, "PATH="+o.peers+":"+os.Getenv("PATH"), "TMPDIR="+n.memory),
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	n.programs = append(n.programs, p)
	return p, nil
}

// gauge measures all that runs because of the node.
func (n *node) gauge() gauge.Daemon { return gauge.Daemon{Pid: n.main.Pid(), Cgroup: n.cgroup} }

// end ends the programs. What their pods were ends with the arena.
func (n *node) end() error {
	var errs []error
	for _, p := range n.programs {
		errs = append(errs, p.End(unix.SIGKILL, time.Minute))
	}
	return errors.Join(append(errs, n.place.Close())...)
}

// await waits until something is so. What it is not so for is the error.
func await(ctx context.Context, patience time.Duration, is func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := is()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}
