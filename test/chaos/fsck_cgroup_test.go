package chaos

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/test/node"
)

// outOf moves the processes of the cgroup that a pattern finds to the top of
// its hierarchy, and removes it.
const outOf = `for f in $(find $TOP -depth -type d -name "*$C*"); do
	top=/sys/fs/cgroup; [ -e $top/cgroup.controllers ] || top=$top/$(echo $f | cut -d/ -f5)
	for p in $(cat $f/cgroup.procs); do echo $p >$top/cgroup.procs; done
	rmdir $f
done`

// TestFsckCgroupsInPart wants a cgroup found that is gone from one hierarchy of
// cgroup v1 and not from the others, with which its limits there are gone.
func TestFsckCgroupsInPart(t *testing.T) {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		t.Skip("this host has cgroup v2 alone, which is one hierarchy")
	}
	node.UnderEach(t, func(t *testing.T, n *node.Node, handler string) {
		s := n.RunPod(handler, func(p *runtimeapi.PodSandboxConfig) {
			p.Linux.Resources = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 64 << 20}
		})
		dir := filepath.Join("/sys/fs/cgroup/memory", filepath.Base(ownCgroup(t, n, s)), "pod"+s.ID)
		limit := func() string {
			b, _ := os.ReadFile(filepath.Join(dir, "memory.limit_in_bytes"))
			return strings.TrimSpace(string(b))
		}
		const want = "67108864"
		if got := limit(); got != want {
			t.Fatalf("the pod's limit is %q", got)
		}
		shell(t, "rmdir "+dir)
		found := audit(t, n, adminv1.FsckRequest{}).Findings
		if len(found) != 1 || found[0].Owner != s.ID || !strings.HasSuffix(found[0].Problem, "it is not in memory") {
			t.Errorf("found:\n%s", strings.Join(told(found), "\n"))
		}
		wantFound(t, n, []string{"cgroup-missing"}, nil)
		if got := limit(); got != want {
			t.Errorf("after the repair the pod's limit is %q", got)
		}
		c := s.Start(node.Script("sleep 1000"))
		wantInOrder(t, n)
		shell(t, "TOP=/sys/fs/cgroup/pids; C="+c.ID+"; "+outOf)
		wantFound(t, n, []string{"cgroup-missing"}, []string{"cgroup-missing"})
		if st := c.Status(); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("the container is %s", st.State)
		}
		c.Remove()
		wantInOrder(t, n)
		s.Remove()
	})
}
