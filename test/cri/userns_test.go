package cri

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// The ids that the pods of these tests have.
const (
	firstID = 1 << 20
	idCount = 1 << 16
)

func mappings() []*runtimeapi.IDMapping {
	return []*runtimeapi.IDMapping{{HostId: firstID, Length: idCount}}
}

// mapped asks for a user namespace of the pod, in the pod and in its containers.
func mapped(more ...func(*runtimeapi.NamespaceOption)) (func(*runtimeapi.PodSandboxConfig), func(*containerConfig)) {
	o := &runtimeapi.NamespaceOption{
		Pid:           runtimeapi.NamespaceMode_CONTAINER,
		UsernsOptions: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: mappings(), Gids: mappings()},
	}
	for _, m := range more {
		m(o)
	}
	return options(o)
}

// needUserNamespaces skips where the handler says that it has none, which has to
// be refused then with the reason.
func needUserNamespaces(t *testing.T, n *node.Node, h string) {
	t.Helper()
	if n.Features(h).GetUserNamespaces() {
		return
	}
	inPod, _ := mapped()
	_, err := n.Runtime.RunPodSandbox(n.Ctx(), &runtimeapi.RunPodSandboxRequest{Config: n.PodConfig(inPod), RuntimeHandler: h})
	if err == nil || !strings.Contains(err.Error(), "user namespace") {
		t.Fatalf("handler %s has no user namespaces, and a pod with one: %v", h, err)
	}
	t.Skip(err)
}

func underEachMapped(t *testing.T, f func(t *testing.T, n *node.Node, h string)) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		needUserNamespaces(t, n, h)
		f(t, n, h)
	})
}

func insideMapped(n *node.Node, h, text string, change func(*containerConfig)) string {
	n.T.Helper()
	inPod, inContainer := mapped()
	return n.Inside(h, text, func(c *containerConfig) {
		inContainer(c)
		if change != nil {
			change(c)
		}
	}, inPod)
}

func wantHostOwner(t *testing.T, path string, uid, gid uint32) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Error(err)
	} else if st.Uid != uid || st.Gid != gid {
		t.Errorf("on the host %s belongs to %d:%d, want %d:%d", path, st.Uid, st.Gid, uid, gid)
	}
}

func TestUserNamespaceFromInside(t *testing.T) {
	underEachMapped(t, func(t *testing.T, n *node.Node, h string) {
		got := insideMapped(n, h, `
			cat /proc/self/uid_map /proc/self/gid_map
			id -u; stat -c '%n %u:%g' / /bin/busybox /etc/hosts /etc/resolv.conf /etc/hostname /dev/shm /new
			echo 1 > /written; chown 7:8 /written; stat -c '%n %u:%g' /written
			echo again > /etc/hosts; echo x > /dev/shm/x
			echo to stdout > /dev/stdout
			hostname
			mount -t tmpfs none /mnt 2>&1 || echo no mount
			cat /proc/sys/net/ipv4/ip_unprivileged_port_start
		`, func(c *containerConfig) { c.WorkingDir = "/new" })
		for _, want := range []string{
			"/ 0:0", "/bin/busybox 0:0", "/etc/hosts 0:0", "/etc/resolv.conf 0:0", "/etc/hostname 0:0",
			"/dev/shm 0:0", "/new 0:0", "/written 7:8", "to stdout",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in %q", want, got)
			}
		}
		if words := strings.Fields(got); len(words) < 6 || strings.Join(words[:6], " ") != "0 1048576 65536 0 1048576 65536" {
			t.Errorf("maps in %q", got)
		}
	})
}

func TestUserNamespaceOnTheHost(t *testing.T) {
	underEachMapped(t, func(t *testing.T, n *node.Node, h string) {
		inPod, inContainer := mapped()
		s := n.RunPod(h, inPod)
		cfg := node.Script("touch /root-made; touch /other; chown 3:4 /other; sleep 1000")
		inContainer(cfg)
		c := s.Start(cfg)
		upper := filepath.Join(n.Root, "containers", c.ID, "upper")
		node.Eventually(t, "what the container writes", func() bool {
			_, err := os.Stat(filepath.Join(upper, "other"))
			return err == nil
		})
		_ = c.Exec("true")
		wantHostOwner(t, filepath.Join(upper, "root-made"), firstID, firstID)
		wantHostOwner(t, filepath.Join(upper, "other"), firstID+3, firstID+4)
		s.Remove()
	})
}

// A volume shows the owners that it has on the host, and takes what is written
// by them, where the mount is mapped; where it is not, it belongs to nobody.
func TestUserNamespaceVolumes(t *testing.T) {
	underEachMapped(t, func(t *testing.T, n *node.Node, h string) {
		dir := hostDir(t)
		got := insideMapped(n, h, "stat -c '%n %u:%g' /vol/file /one /nobody/file; echo x > /vol/made; chown 5:6 /vol/made; echo x 2>&1 > /nobody/made || true",
			mounts(
				&runtimeapi.Mount{HostPath: dir, ContainerPath: "/vol", UidMappings: mappings(), GidMappings: mappings()},
				&runtimeapi.Mount{HostPath: dir + "/file", ContainerPath: "/one", Readonly: true, UidMappings: mappings(), GidMappings: mappings()},
				&runtimeapi.Mount{HostPath: dir, ContainerPath: "/nobody"},
			))
		for _, want := range []string{"/vol/file 0:0", "/one 0:0", "/nobody/file 65534:65534"} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in %q", want, got)
			}
		}
		wantHostOwner(t, filepath.Join(dir, "made"), 5, 6)
		if b, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(b) != "from the host\n" {
			t.Errorf("the volume was not left as it was: %q, %v", b, err)
		}
	})
}

// The containers of a pod share its user namespace, and a daemon that replaces a
// killed one goes on with it.
func TestUserNamespaceIsThePods(t *testing.T) {
	underEachMapped(t, func(t *testing.T, n *node.Node, h string) {
		inPod, inContainer := mapped(func(o *runtimeapi.NamespaceOption) { o.Pid = runtimeapi.NamespaceMode_POD })
		s := n.RunPod(h, inPod)
		start := func() *node.Container {
			cfg := node.Script("sleep 1000")
			inContainer(cfg)
			return s.Start(cfg)
		}
		a := start()
		n.Kill(syscall.SIGKILL)
		n.Start()
		b := start()
		for _, kind := range []string{"user", "pid", "net", "ipc", "uts"} {
			if a.NS(kind) != b.NS(kind) || a.NS(kind) == hostNS(t, kind) {
				t.Errorf("%s: %s, %s, host %s", kind, a.NS(kind), b.NS(kind), hostNS(t, kind))
			}
		}
		got := b.Exec("sh", "-c", "cat /proc/self/uid_map; id -u; echo again > /dev/stdout; ps")
		if f := strings.Fields(got); len(f) < 5 || strings.Join(f[:5], " ") != "0 1048576 65536 0 again" || !strings.Contains(got, "pause") {
			t.Errorf("exec: %q", got)
		}
		if out, err := n.CLI("fsck"); err != nil {
			t.Errorf("fsck: %v: %s", err, out)
		}
		s.Remove()
	})
}

// On the node's network the pod's root sees the node's interfaces and has no power
// over them, nor over what /sys tells of the node.
func TestUserNamespaceOnTheNodesNetwork(t *testing.T) {
	underEachMapped(t, func(t *testing.T, n *node.Node, h string) {
		st, err := n.Runtime.Status(n.Ctx(), &runtimeapi.StatusRequest{})
		if err != nil || !st.Features.GetUserNamespacesHostNetwork() {
			t.Errorf("features: %+v, %v", st.GetFeatures(), err)
		}
		inPod, inContainer := mapped(func(o *runtimeapi.NamespaceOption) { o.Network = runtimeapi.NamespaceMode_NODE })
		s := n.RunPod(h, inPod)
		cfg := node.Script("sleep 1000")
		inContainer(cfg)
		c := s.Start(cfg)
		if c.NS("net") != hostNS(t, "net") || c.NS("user") == hostNS(t, "user") || c.NS("ipc") == hostNS(t, "ipc") {
			t.Errorf("net %s, user %s, ipc %s", c.NS("net"), c.NS("user"), c.NS("ipc"))
		}
		got := c.Exec("sh", "-c", `
			cat /proc/self/uid_map
			ls /sys/class/net
			ip link add made type dummy 2>&1 || echo made none
			(echo 1 > /sys/kernel/uevent_seqnum) 2>&1 || echo wrote nothing
			grep ' /sys ' /proc/self/mountinfo
			hostname`)
		name, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"1048576", "lo\n", "made none", "wrote nothing", "/ /sys ro,", name} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in %q", want, got)
			}
		}
		s.Remove()
	})
}

func TestUserNamespaceRefusals(t *testing.T) {
	n := node.Start(t, "")
	one := mappings()
	for name, tc := range map[string]struct {
		change func(*runtimeapi.NamespaceOption)
		says   string
	}{
		"two":          {func(o *runtimeapi.NamespaceOption) { o.UsernsOptions.Uids = append(one, one...) }, "2 mappings"},
		"none":         {func(o *runtimeapi.NamespaceOption) { o.UsernsOptions.Gids = nil }, "0 mappings"},
		"empty":        {func(o *runtimeapi.NamespaceOption) { o.UsernsOptions.Uids = []*runtimeapi.IDMapping{{}} }, "length"},
		"without root": {func(o *runtimeapi.NamespaceOption) { o.UsernsOptions.Uids[0].ContainerId = 1 }, "root"},
		"container":    {func(o *runtimeapi.NamespaceOption) { o.UsernsOptions.Mode = runtimeapi.NamespaceMode_CONTAINER }, "CONTAINER"},
		"target":       {func(o *runtimeapi.NamespaceOption) { o.UsernsOptions.Mode = runtimeapi.NamespaceMode_TARGET }, "TARGET"},
		"host PIDs":    {func(o *runtimeapi.NamespaceOption) { o.Pid = runtimeapi.NamespaceMode_NODE }, "pid is NODE"},
		"host IPC":     {func(o *runtimeapi.NamespaceOption) { o.Ipc = runtimeapi.NamespaceMode_NODE }, "ipc is NODE"},
	} {
		t.Run(name, func(t *testing.T) {
			inPod, _ := mapped(tc.change)
			_, err := n.Runtime.RunPodSandbox(n.Ctx(), &runtimeapi.RunPodSandboxRequest{Config: n.PodConfig(inPod), RuntimeHandler: "crun"})
			if err == nil || !strings.Contains(err.Error(), tc.says) && n.Features("crun").GetUserNamespaces() {
				t.Errorf("%v", err)
			}
		})
	}
}
