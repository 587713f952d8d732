package node

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

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
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		controller, v1 = "", v2
	}
	var found string
	_ = filepath.WalkDir(filepath.Join("/sys/fs/cgroup", controller), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(filepath.Base(path), c.ID) {
			found = path
			return filepath.SkipAll
		}
		return nil
	})
	if found == "" {
		t.Fatalf("container %s has no cgroup for %q", c.ID, controller)
	}
	// In a scope of systemd's, crun makes a cgroup of its own and limits that.
	if below := filepath.Join(found, "container"); strings.HasSuffix(found, ".scope") && isDir(below) {
		found = below
	}
	b, err := os.ReadFile(filepath.Join(found, v1))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}
