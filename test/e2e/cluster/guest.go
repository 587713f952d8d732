package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/vishvananda/netlink"

	"fairlead.run/test/e2e/machine"
)

// guest is the node's place where it is a guest. What is there of this machine is
// read-only: programs, certificates and what the machine has in /usr. The disk is
// the guest's own.
var guest = place{
	address: guestAddress, disk: "/scratch/disk", memory: "/run/e2e", cgroup: "/", unified: true,
}

const (
	tap         = "guest0"
	agentListen = guestAddress + ":7946"
)

// machine starts the node's machine, if that is a guest. It runs a program that
// takes orders. The guest ends with the program that emulates it.
func (c *Cluster) machine(ctx context.Context) error {
	if c.cfg.Guest == "" {
		return nil
	}
	argv := []string{
		c.cfg.Guest, "-N", tap + "," + guestAddress + "/24," + HostAddress,
		"-m", "6144", "-d", "16384", "-k", "hugepages=16", "-t", fmt.Sprint(int((24 * time.Hour).Seconds())), "-v", c.cfg.Output, "-C", "/",
	}
	if c.cfg.Systemd {
		argv = append(argv, "-S")
	}
	argv = append(argv, "--", c.program("agent"), "-listen", agentListen, "-patience", c.cfg.Patience.String(),
		"-disk", guest.disk, "-memory", guest.memory)
	// The guest's disk is a file in the folder for temporary ones.
	on := c.here
	on.memory = c.here.disk
	_, err := c.startOn(ctx, on, argv, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // what is lost while it boots is not sent again soon
		defer cancel()
		// It answers an order after its own patience with a program, and some time for itself.
		remote, err := machine.Dial(ctx, agentListen, c.cfg.Patience+time.Minute)
		if err != nil {
			return err
		}
		c.node.Machine = remote
		return remote.SetClock()
	})
	return err
}

// guestNetwork makes the device that is the guest's network card on this side, on
// a bridge, and sends there what is for pods.
func guestNetwork(bridge netlink.Link) error {
	link := &netlink.Tuntap{
		LinkAttrs: netlink.LinkAttrs{Name: tap, MasterIndex: bridge.Attrs().Index},
		Mode:      netlink.TUNTAP_MODE_TAP,
	}
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("add a device for the guest: %w", err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set the guest's device up: %w", err)
	}
	_, pods, err := net.ParseCIDR(podRange)
	if err != nil {
		return err
	}
	route := &netlink.Route{LinkIndex: bridge.Attrs().Index, Dst: pods, Gw: net.ParseIP(guestAddress)}
	if err := netlink.RouteAdd(route); err != nil {
		return fmt.Errorf("add a route to the guest's pods: %w", err)
	}
	return nil
}

// leaveGuest forgets the processes of a guest that has ended by itself, because
// nobody there takes orders to end them.
func (c *Cluster) leaveGuest() error {
	for i, p := range c.processes {
		if p.Argv[0] != c.cfg.Guest {
			continue
		}
		if ended, err := p.on.Ended(p.Name); err != nil || !ended {
			return err
		}
		c.processes = c.processes[:i] // those that started later were in it
		return errors.New("the guest has ended before the cluster did:\n" + p.Said())
	}
	return nil
}
