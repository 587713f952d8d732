package node

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Features are those that Status reports for a handler, which has them once it
// was tried.
func (n *Node) Features(handler string) (f *runtimeapi.RuntimeHandlerFeatures) {
	n.T.Helper()
	ctx := n.Ctx()
	Eventually(n.T, "handler "+handler+" is in Status", func() bool {
		st, err := n.Runtime.Status(ctx, &runtimeapi.StatusRequest{})
		if err != nil {
			n.T.Fatal(err)
		}
		i := slices.IndexFunc(st.RuntimeHandlers, func(h *runtimeapi.RuntimeHandler) bool { return h.Name == handler })
		if i >= 0 {
			f = st.RuntimeHandlers[i].Features
		}
		return i >= 0
	})
	return f
}

// NS is a namespace of the container, such as "net:[4026531840]".
func (c *Container) NS(kind string) string {
	c.Sandbox.Node.T.Helper()
	return strings.TrimSpace(c.Exec("readlink", "/proc/self/ns/"+kind))
}

// IPs are the pod's addresses.
func (s *Sandbox) IPs() []string {
	s.Node.T.Helper()
	st, err := s.Node.Runtime.PodSandboxStatus(s.Node.Ctx(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.ID})
	if err != nil {
		s.Node.T.Fatal(err)
	}
	out := []string{st.Status.Network.GetIp()}
	for _, ip := range st.Status.Network.GetAdditionalIps() {
		out = append(out, ip.Ip)
	}
	return out
}

// CgroupFile finds a file of the container's cgroup on the host.
func (c *Container) CgroupFile(controller, v1, v2 string) string {
	t := c.Sandbox.Node.T
	t.Helper()
	found, file := cgroup(t, c.ID, controller, v1, v2)
	// In a scope of systemd's, crun makes a cgroup of its own and limits that.
	if below := filepath.Join(found, "container"); strings.HasSuffix(found, ".scope") && isDir(below) {
		found = below
	}
	return read(t, filepath.Join(found, file))
}

// CgroupFile finds a file of the pod's own cgroup on the host.
func (s *Sandbox) CgroupFile(controller, v1, v2 string) string {
	s.Node.T.Helper()
	found, file := cgroup(s.Node.T, s.ID, controller, v1, v2)
	return read(s.Node.T, filepath.Join(found, file))
}

// cgroup finds the topmost cgroup that an id is in the name of, and which file to
// look at on this host.
//
// Larger: each version of cgroups has a name of its own for the file.
func cgroup(t *testing.T, id, controller, v1, v2 string) (dir, file string) {
	t.Helper()
	file = v1
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		controller, file = "", v2
	}
	_ = filepath.WalkDir(filepath.Join("/sys/fs/cgroup", controller), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(filepath.Base(path), id) {
			dir = path
			return filepath.SkipAll
		}
		return nil
	})
	if dir == "" {
		t.Fatalf("%s has no cgroup for %q", id, controller)
	}
	return dir, file
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}
