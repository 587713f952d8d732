// Package view says which places of a node an installer in a container has to see,
// and which of them it writes to.
//
// It is what the operator mounts, and internal/installer/profile is held against it: a
// distribution whose files are elsewhere cannot be added to one alone. It knows no
// Kubernetes and looks at nothing.
package view

import (
	"fmt"
	"slices"
	"strings"
)

// State is where the installer's journal is.
const State = "/var/lib/fairlead-installer"

// Told is where the node's monitor leaves what it has done. That goes with the boot.
const Told = "/run/fairlead-installer"

// Kind is what a place is.
type Kind string

// The kinds.
const (
	// Folder has to be there: the node is another one than was thought if it is not.
	Folder Kind = "folder"
	// Made is a folder that is made where it is missing.
	Made Kind = "made"
	// File has to be there.
	File Kind = "file"
)

// Place is a folder or a file of a node.
type Place struct {
	Path string
	Kind Kind
	// Write says that the installer changes it.
	Write bool
	// Live says that mounts come and go below it: a container that kept them would
	// hold up who unmounts them.
	Live bool
}

// distributions are where each has its configuration and its socket. That of a socket
// is a folder, as a daemon that is restarted makes its socket anew.
var distributions = map[string][]Place{
	"containerd": {{Path: "/etc/containerd", Kind: Made, Write: true}, {Path: "/run/containerd", Kind: Folder, Live: true}},
	"crio":       {{Path: "/etc/crio", Kind: Made, Write: true}, {Path: "/run/crio", Kind: Folder, Live: true}},
	"k3s":        {{Path: "/var/lib/rancher/k3s/agent/etc/containerd", Kind: Folder, Write: true}, {Path: "/run/k3s/containerd", Kind: Folder, Live: true}},
	"rke2":       {{Path: "/var/lib/rancher/rke2/agent/etc/containerd", Kind: Folder, Write: true}, {Path: "/run/k3s/containerd", Kind: Folder, Live: true}},
	"k0s":        {{Path: "/etc/k0s", Kind: Folder, Write: true}, {Path: "/run/k0s", Kind: Folder, Live: true}},
	// Its configuration is behind a link to the folder of a revision.
	"microk8s": {{Path: "/var/snap/microk8s", Kind: Folder, Write: true, Live: true}},
}

// Want is what an installer is to do.
type Want struct {
	// Distribution is a name of internal/installer/profile.
	Distribution string
	// BinaryPath is where runtimes go.
	BinaryPath string
	// Systemd says that it restarts a unit, Command that it runs a program of the
	// node for that, and Devices that the payload asks for some.
	Systemd, Command, Devices bool
}

// Places are what has to be seen for that, in the order of their paths.
func (w Want) Places() ([]Place, error) {
	own, ok := distributions[w.Distribution]
	if !ok {
		return nil, fmt.Errorf("say what an installer has to see: there is no distribution %q", w.Distribution)
	}
	all := append(slices.Clone(own),
		Place{Path: "/etc/os-release", Kind: File},
		Place{Path: State, Kind: Made, Write: true},
		Place{Path: Told, Kind: Made},
		Place{Path: w.BinaryPath, Kind: Made, Write: true},
	)
	if w.Systemd {
		all = append(all,
			Place{Path: "/run/dbus", Kind: Folder},
			// Only containerd as the operating system has it may need a drop-in.
			Place{Path: "/etc/systemd/system", Kind: Folder, Write: w.Distribution == "containerd"})
	}
	if w.Devices {
		all = append(all, Place{Path: "/dev", Kind: Folder, Live: true})
	}
	if w.Command {
		all = append(all, Place{Path: "/", Kind: Folder, Live: true})
	}
	slices.SortFunc(all, func(a, b Place) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}
