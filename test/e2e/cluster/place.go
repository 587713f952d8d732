package cluster

import (
	"os"

	"fairlead.run/test/e2e/machine"
)

// place is a machine, and where on it things are.
type place struct {
	machine.Machine
	address string // by which other machines reach it
	disk    string // folder on a disk
	memory  string // folder in memory
	cgroup  string // above those of all pods
	unified bool   // it has cgroup v2 alone
	systemd bool   // which makes the cgroups there
}

// driver is the name of who makes cgroups.
func (p place) driver() string {
	if p.systemd {
		return "systemd"
	}
	return "cgroupfs"
}

func unified() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}
