package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/test/node"
)

// offline runs the command without a daemon.
func offline(t *testing.T, n *node.Node, args ...string) (adminv1.FsckReply, error) {
	t.Helper()
	out, err := n.CLI(append([]string{"fsck", "-o", "json"}, args...)...)
	var reply adminv1.FsckReply
	if out != "" {
		if err := json.Unmarshal([]byte(out), &reply); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return reply, err
}

// tried waits for the trials of all handlers: one that is cut off by a kill is a
// leftover, rightly. The pods stay: the network of one that goes is taken down later.
func tried(n *node.Node) {
	n.T.Helper()
	for _, h := range node.Handlers {
		n.RunPod(h)
	}
}

// TestFsckWithoutDaemon wants the same of the command alone: it finds and
// repairs, starts nothing, and leaves the pods of the dead daemon alone.
func TestFsckWithoutDaemon(t *testing.T) {
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	tried(n)
	s := n.RunPod("", hostPort(31874))
	c := s.Start(node.Script(node.Numbers))
	waiting := s.Create(node.Script("sleep 1000"))
	n.Kill(syscall.SIGKILL)

	if r, err := offline(t, n); err != nil || len(r.Findings) > 0 {
		t.Errorf("a node in order: %v\n%s", err, strings.Join(told(r.Findings), "\n"))
	}
	dead := nobody(0)
	shell(t, fmt.Sprintf("cd %s/containers; mkdir -p %s/rootfs; mount -t tmpfs x %s/rootfs", n.State, dead, dead))
	shell(t, fmt.Sprintf("mkdir -p %s/containers/%s/upper; echo '{' >%s/network/attachments/%s.json", n.Root, dead, n.Root, dead))
	shell(t, fmt.Sprintf("echo > %s/content/blobs/sha256/%s", n.Root, dead))
	shell(t, fmt.Sprintf("nft add element inet %s ports4 '{ tcp . 31875 : 10.1.2.3 . 80 }'", n.Bridge))
	shell(t, fmt.Sprintf("umount %s/pods/%s/ns/ipc %s/containers/%s/rootfs", n.State, s.ID, n.State, waiting.ID))
	want := []string{
		"attachment-leftover", "blob-leftover", "bundle-leftover", "element-leftover", "mount-leftover", "mount-missing",
		"namespace-missing", "writable-leftover",
	}
	for range 2 { // looking changes nothing
		r, err := offline(t, n, "--dry-run")
		if got := codesOf(r.Findings); err == nil || !slices.Equal(got, want) {
			t.Fatalf("found %v, want %v (%v)", got, want, err)
		}
	}
	if r, err := offline(t, n, "--repair"); err != nil || len(r.Left()) > 0 {
		t.Fatalf("repair: %v\n%s", err, strings.Join(told(r.Left()), "\n"))
	}
	if r, err := offline(t, n); err != nil || len(r.Findings) > 0 {
		t.Errorf("after the repair: %v\n%s", err, strings.Join(told(r.Findings), "\n"))
	}
	n.Start()
	if st := c.Status(); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the container is %s", st.State)
	}
	if err := waiting.TryStart(); err != nil {
		t.Errorf("start the container whose root file system was put back: %v", err)
	}
	c.StopNumbers()
	c.Wait()
	node.CheckNumbers(t, c.Log())
	wantInOrder(t, n)
}

// TestFsckOfCheckpointsCutOff wants it told that a container may be frozen, which
// the next daemon mends.
func TestFsckOfCheckpointsCutOff(t *testing.T) {
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	tried(n)
	c := n.RunPod("").Start(node.Script("sleep 1000"))
	n.Kill(syscall.SIGKILL)
	shell(t, fmt.Sprintf("mkdir -p %s/checkpoints/%s", n.Root, c.ID))
	for _, how := range []string{"--dry-run", "--repair"} {
		if r, err := offline(t, n, how); err == nil || !slices.Equal(codesOf(r.Left()), []string{"checkpoint-faulty"}) {
			t.Errorf("%s found %v (%v)", how, codesOf(r.Findings), err)
		}
	}
	n.Start()
	node.Eventually(t, "the folder of the checkpoint is gone", func() bool {
		_, err := os.Stat(n.Root + "/checkpoints/" + c.ID)
		return errors.Is(err, fs.ErrNotExist)
	})
	wantInOrder(t, n)
}

// TestFsckStartsNothing looks at a node whose daemon and monitor are dead.
func TestFsckStartsNothing(t *testing.T) {
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	tried(n)
	s := n.RunPod("")
	s.Start(node.Script("sleep 1000"))
	n.Kill(syscall.SIGKILL)
	n.KillMonitor("both")
	r, err := offline(t, n)
	if got := codesOf(r.Findings); !slices.Equal(got, []string{"process-missing"}) {
		t.Errorf("found %v (%v), want the container that no monitor follows", got, err)
	}
	for _, p := range n.Left() {
		if strings.HasPrefix(p, "process ") && strings.Contains(p, "fairlead-monitor") {
			t.Errorf("a monitor was started: %s", p)
		}
	}
	n.Start()
}

// TestFsckLeavesOthersAlone wants no look at a state directory that somebody
// else has, and says so by its exit code.
func TestFsckLeavesOthersAlone(t *testing.T) {
	n := node.Start(t, "")
	n.Kill(syscall.SIGKILL)
	dir, err := os.Open(n.State)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	_, err = offline(t, n, "--repair")
	if err == nil || !strings.Contains(err.Error(), "exit status 2") || !strings.Contains(err.Error(), "uses this state directory") {
		t.Errorf("while another daemon has the directory: %v", err)
	}
	if err := dir.Close(); err != nil {
		t.Error(err)
	}
	n.Start()
}

// TestFsckOfStoppedPods wants what a stopped pod has given back to stay away,
// and the pod itself to stay.
func TestFsckOfStoppedPods(t *testing.T) {
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	s := n.RunPod("")
	if _, err := n.Runtime.StopPodSandbox(n.Ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.ID}); err != nil {
		t.Fatal(err)
	}
	node.Eventually(t, "a stopped pod is in order", func() bool { return len(audit(t, n, adminv1.FsckRequest{}).Findings) == 0 })
	shell(t, fmt.Sprintf("unshare --uts=%s/pods/%s/ns/uts true", n.State, s.ID))
	wantFound(t, n, []string{"namespace-leftover"}, nil)
	if _, err := n.Runtime.PodSandboxStatus(n.Ctx(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.ID}); err != nil {
		t.Errorf("the pod: %v", err)
	}
	s.Remove()
}

// TestFsckCNI wants results of plugins released that no pod has.
func TestFsckCNI(t *testing.T) {
	n := node.Start(t, "", node.Conflist)
	n.Pull(node.Busybox)
	s := n.RunPod("")
	c := s.Start(node.Script("sleep 1000"))
	wantInOrder(t, n)
	results, err := filepath.Glob(n.Root + "/network/cni-cache/results/*" + s.ID + "*")
	if err != nil || len(results) != 1 {
		t.Fatalf("results of plugins: %v, %v", results, err)
	}
	copied := strings.ReplaceAll(results[0], s.ID, nobody(1))
	shell(t, fmt.Sprintf("sed s/%s/%s/g %s >%s", s.ID, nobody(1), results[0], copied))
	wantFound(t, n, []string{"result-leftover"}, nil)
	if _, err := os.Stat(copied); err == nil {
		t.Errorf("%s is still there", copied)
	}
	shell(t, "rm "+n.Root+"/network/attachments/"+s.ID+".json")
	wantFound(t, n, []string{"attachment-missing"}, nil)
	if got := c.Exec("ip", "addr", "show", "eth0"); !strings.Contains(got, s.IPs()[0]) {
		t.Errorf("the pod's interface: %s", got)
	}
	s.Remove()
	wantInOrder(t, n)
}

// TestFsckWhereNothingRan wants no folder made by looking.
func TestFsckWhereNothingRan(t *testing.T) {
	dir := t.TempDir()
	out, err := exec.Command(filepath.Join(node.Bin, "fairlead"), "fsck", "-o", "json", "--state", dir+"/run", "--root", dir+"/lib").Output()
	if err != nil || !strings.Contains(string(out), `"findings": []`) {
		t.Errorf("%s, %v", out, err)
	}
	if made, err := os.ReadDir(dir); err != nil || len(made) > 0 {
		t.Errorf("made %v (%v)", made, err)
	}
}
