package cri

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// hostDir is a folder of the test with a file in it.
func hostDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("from the host\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func mounts(m ...*runtimeapi.Mount) func(*containerConfig) {
	return func(c *containerConfig) { c.Mounts = m }
}

func TestMountReadWriteAndReadOnly(t *testing.T) {
	node.UnderAll(t, func(t *testing.T, n *node.Node, h string) {
		dir := hostDir(t)
		got := n.Inside(h, "cat /rw/file; echo new > /rw/made; touch /ro/x 2>&1 || true; cat /one",
			mounts(
				&runtimeapi.Mount{HostPath: dir, ContainerPath: "/rw"},
				&runtimeapi.Mount{HostPath: dir, ContainerPath: "/ro", Readonly: true},
				&runtimeapi.Mount{HostPath: dir + "/file", ContainerPath: "/one"},
			))
		if strings.Count(got, "from the host") != 2 || !strings.Contains(got, "Read-only file system") {
			t.Errorf("%q", got)
		}
		if b, err := os.ReadFile(dir + "/made"); err != nil || string(b) != "new\n" {
			t.Error(string(b), err)
		}
	})
}

func TestMountOptions(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		dir := hostDir(t)
		if err := os.WriteFile(dir+"/run", []byte("#!/bin/sh\necho ran\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		got := n.Inside(h, "/free/run; /tied/run 2>&1 || true; grep ' /tied ' /proc/mounts",
			mounts(
				&runtimeapi.Mount{HostPath: dir, ContainerPath: "/free"},
				&runtimeapi.Mount{HostPath: dir, ContainerPath: "/tied", MountOptions: []string{"noexec", "nosuid", "nodev"}},
			))
		if strings.Count(got, "ran\n") != 1 || !strings.Contains(got, "Permission denied") {
			t.Errorf("%q", got)
		}
		for _, option := range []string{"noexec", "nosuid", "nodev"} {
			if !strings.Contains(got, option) {
				t.Errorf("no %s in %q", option, got)
			}
		}
	})
}

func TestMountOfSymlinkAndOfMissingPath(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		dir := hostDir(t)
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(dir, link); err != nil {
			t.Fatal(err)
		}
		missing := filepath.Join(t.TempDir(), "not", "there")
		got := n.Inside(h, "cat /linked/file; ls -a /missing | wc -l", mounts(
			&runtimeapi.Mount{HostPath: link, ContainerPath: "/linked"},
			&runtimeapi.Mount{HostPath: missing, ContainerPath: "/missing"},
		))
		must(t, got, "from the host\n2")
		if st, err := os.Stat(missing); err != nil || !st.IsDir() {
			t.Error("the missing path was not made:", err)
		}
	})
}

func TestRecursiveReadOnly(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		dir := hostDir(t)
		below := filepath.Join(dir, "below")
		if err := os.Mkdir(below, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("none", below, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		defer unix.Unmount(below, unix.MNT_DETACH)
		const try = "touch /m/below/x 2>/dev/null && echo writable || echo closed"
		plain := &runtimeapi.Mount{HostPath: dir, ContainerPath: "/m", Readonly: true}
		must(t, n.Inside(h, try, mounts(plain)), "writable")
		rro := &runtimeapi.Mount{HostPath: dir, ContainerPath: "/m", Readonly: true, RecursiveReadOnly: true, Propagation: runtimeapi.MountPropagation_PROPAGATION_PRIVATE}
		if !n.Features(h).GetRecursiveReadOnlyMounts() {
			s := n.RunPod(h)
			cfg := node.Script(try)
			mounts(rro)(cfg)
			if _, err := s.TryCreate(cfg); err == nil || !strings.Contains(err.Error(), "recursive") {
				t.Errorf("a handler without the feature must refuse it: %v", err)
			}
			return
		}
		must(t, n.Inside(h, try, mounts(rro)), "closed")
	})
}

func TestMountPropagation(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		shared := t.TempDir()
		if err := unix.Mount(shared, shared, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		defer unix.Unmount(shared, unix.MNT_DETACH)
		if err := unix.Mount("", shared, "", unix.MS_SHARED, ""); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(shared+"/sub", 0o755); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			mode        runtimeapi.MountPropagation
			sees, makes bool
		}{
			{runtimeapi.MountPropagation_PROPAGATION_PRIVATE, false, false},
			{runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, true, false},
			{runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL, true, true},
		} {
			t.Run(tt.mode.String(), func(t *testing.T) {
				n.T = t
				s := n.RunPod(h, privilegedPod)
				cfg := node.Script("sleep 1000")
				cfg.Linux.SecurityContext.Privileged = true
				mounts(&runtimeapi.Mount{HostPath: shared, ContainerPath: "/m", Propagation: tt.mode})(cfg)
				c := s.Start(cfg)
				if err := unix.Mount("none", shared+"/sub", "tmpfs", 0, ""); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(shared+"/sub/late", nil, 0o644); err != nil {
					t.Fatal(err)
				}
				got := strings.TrimSpace(c.Exec("sh", "-c", "[ -e /m/sub/late ] && echo yes || echo no")) == "yes"
				if err := unix.Unmount(shared+"/sub", unix.MNT_DETACH); err != nil {
					t.Fatal(err)
				}
				if got != tt.sees {
					t.Errorf("the container sees the host's mount: %v", got)
				}
				c.Exec("mount", "-t", "tmpfs", "none", "/m/sub")
				c.Exec("touch", "/m/sub/inner")
				_, err := os.Stat(shared + "/sub/inner")
				if (err == nil) != tt.makes {
					t.Errorf("the host sees the container's mount: %v", err)
				}
				if tt.makes {
					c.Exec("umount", "/m/sub")
				}
				s.Remove()
			})
		}
	})
}

func privilegedPod(p *runtimeapi.PodSandboxConfig) { p.Linux.SecurityContext.Privileged = true }

func TestReadOnlyRootfs(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		got := n.Inside(h, "touch /x 2>&1; touch /dev/shm/ok && echo shm", func(c *containerConfig) {
			c.Linux.SecurityContext.ReadonlyRootfs = true
		})
		if !strings.Contains(got, "Read-only file system") || !strings.Contains(got, "shm") {
			t.Errorf("%q", got)
		}
	})
}

// tryPaths says of a file and a folder whether they can be read, and of another
// file whether it can be written; it is the pod's own.
const tryPaths = "grep -q Linux /proc/version && echo version || echo masked; [ -n \"$(ls /proc/sys/fs)\" ] && echo listed || echo empty; " +
	"echo 81 >/proc/sys/net/ipv4/ip_unprivileged_port_start && echo open || echo closed"

// keepPaths keeps a container from all three.
func keepPaths(c *containerConfig) {
	c.Linux.SecurityContext.MaskedPaths = []string{"/proc/version", "/proc/sys/fs", "/proc/no/such/path"}
	c.Linux.SecurityContext.ReadonlyPaths = []string{"/proc/sys"}
}

func TestMaskedAndReadOnlyPaths(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		mustContain(t, n.Inside(h, tryPaths, nil), "version", "listed", "open")
		mustContain(t, n.Inside(h, tryPaths, keepPaths), "masked", "empty", "closed")
	})
}

func TestSharedMemoryIsThePods(t *testing.T) {
	node.UnderAll(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		a := s.Start(node.Script("echo hello > /dev/shm/x; sleep 1000"))
		b := s.Start(node.Script("sleep 1000"))
		node.Eventually(t, "the file", func() bool {
			return strings.Contains(a.Exec("ls", "/dev/shm"), "x")
		})
		must(t, b.Exec("cat", "/dev/shm/x"), "hello")
	})
}
