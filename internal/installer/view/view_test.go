package view

import (
	"slices"
	"testing"
)

func paths(t *testing.T, w Want) (all, written []string) {
	t.Helper()
	places, err := w.Places()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range places {
		all = append(all, p.Path)
		if p.Write {
			written = append(written, p.Path)
		}
	}
	return all, written
}

func TestPlaces(t *testing.T) {
	for name, c := range map[string]struct {
		want         Want
		all, written []string
	}{
		"containerd": {
			Want{Distribution: "containerd", BinaryPath: "/usr/bin", Systemd: true},
			[]string{"/etc/containerd", "/etc/os-release", "/etc/systemd/system", "/run/containerd", "/run/dbus", Told, "/usr/bin", State},
			[]string{"/etc/containerd", "/etc/systemd/system", "/usr/bin", State},
		},
		"crio by a signal": {
			Want{Distribution: "crio", BinaryPath: "/opt/bin"},
			[]string{"/etc/crio", "/etc/os-release", "/opt/bin", "/run/crio", Told, State},
			[]string{"/etc/crio", "/opt/bin", State},
		},
		"k3s and devices": {
			Want{Distribution: "k3s", BinaryPath: "/usr/bin", Systemd: true, Devices: true},
			[]string{"/dev", "/etc/os-release", "/etc/systemd/system", "/run/dbus", Told, "/run/k3s/containerd", "/usr/bin", State, "/var/lib/rancher/k3s/agent/etc/containerd"},
			[]string{"/usr/bin", State, "/var/lib/rancher/k3s/agent/etc/containerd"},
		},
		"a command": {
			Want{Distribution: "k0s", BinaryPath: "/usr/bin", Command: true},
			[]string{"/", "/etc/k0s", "/etc/os-release", Told, "/run/k0s", "/usr/bin", State},
			[]string{"/etc/k0s", "/usr/bin", State},
		},
	} {
		all, written := paths(t, c.want)
		if !slices.Equal(all, c.all) || !slices.Equal(written, c.written) {
			t.Errorf("%s: sees %q\nand writes %q", name, all, written)
		}
	}
	if _, err := (Want{Distribution: "docker"}).Places(); err == nil {
		t.Error("docker has places")
	}
}
