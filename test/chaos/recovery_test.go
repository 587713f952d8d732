package chaos

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/store"
	"fairlead.run/test/node"
)

// sleeper is a container that does nothing until it is killed.
func sleeper() *runtimeapi.ContainerConfig { return node.Script("while :; do sleep 1000; done") }

// inhabited runs a pod with one container.
func inhabited(n *node.Node, handler string, change ...func(*runtimeapi.PodSandboxConfig)) (*node.Sandbox, *node.Container) {
	n.T.Helper()
	s := n.RunPod(handler, append(change, labelled)...)
	return s, s.Start(sleeper())
}

// uidLabel is how a kubelet asks for the sandboxes of a pod.
const uidLabel = "io.kubernetes.pod.uid"

func labelled(p *runtimeapi.PodSandboxConfig) { p.Labels = map[string]string{uidLabel: p.Metadata.Uid} }

// details are what the verbose status of a pod says beside the CRI's fields.
type details struct {
	State  string `json:"state"`
	Reason string `json:"reason"`
}

func inspect(n *node.Node, id string) (*runtimeapi.PodSandboxStatusResponse, details) {
	n.T.Helper()
	r, err := n.Runtime.PodSandboxStatus(n.Ctx(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		n.T.Fatalf("status of pod %s: %v", id, err)
	}
	var d details
	if err := json.Unmarshal([]byte(r.Info["info"]), &d); err != nil {
		n.T.Fatal(err)
	}
	return r, d
}

// pidOf is the first process of a container.
func pidOf(c *node.Container) int {
	n := c.Sandbox.Node
	n.T.Helper()
	r, err := n.Runtime.ContainerStatus(n.Ctx(), &runtimeapi.ContainerStatusRequest{ContainerId: c.ID, Verbose: true})
	if err != nil {
		n.T.Fatal(err)
	}
	var info struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(r.Info["info"]), &info); err != nil || info.PID == 0 {
		n.T.Fatalf("no pid: %v, %s", err, r.Info["info"])
	}
	return info.PID
}

// editRecords changes what is kept of pods while no daemon runs.
func editRecords(n *node.Node, edit func(pods *bbolt.Bucket) error) {
	n.T.Helper()
	db, err := bbolt.Open(filepath.Join(n.State, store.File), 0o600, nil)
	if err != nil {
		n.T.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error { return edit(tx.Bucket([]byte("pods"))) })
	if closed := db.Close(); err == nil {
		err = closed
	}
	if err != nil {
		n.T.Fatal(err)
	}
}

// unmountBelow takes away every mount below a folder, the newest first.
func unmountBelow(t *testing.T, dir string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(mounts)), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if at := strings.Fields(lines[i])[4]; strings.HasPrefix(at, dir+"/") {
			if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
				t.Fatalf("unmount %s: %v", at, err)
			}
		}
	}
}

// dropCgroups moves the processes of a pod to the top and removes its cgroups,
// as a tool for tidying up might that goes too far.
func dropCgroups(t *testing.T, id string) {
	t.Helper()
	var pod []string
	for _, pattern := range []string{"/sys/fs/cgroup/*/*/pod" + id, "/sys/fs/cgroup/*/pod" + id} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pod = append(pod, found...)
	}
	if len(pod) == 0 {
		t.Fatal("the pod has no cgroup")
	}
	for _, dir := range pod {
		top := filepath.Join("/sys/fs/cgroup", strings.Split(strings.TrimPrefix(dir, "/sys/fs/cgroup/"), "/")[0])
		if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
			top = "/sys/fs/cgroup"
		}
		var dirs []string
		_ = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for i := len(dirs) - 1; i >= 0; i-- {
			procs, _ := os.ReadFile(filepath.Join(dirs[i], "cgroup.procs"))
			for _, pid := range strings.Fields(string(procs)) {
				if err := os.WriteFile(filepath.Join(top, "cgroup.procs"), []byte(pid), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			node.Eventually(t, "the cgroup "+dirs[i]+" is removed", func() bool {
				err := os.Remove(dirs[i])
				return err == nil || os.IsNotExist(err)
			})
		}
	}
}

// damages are what can happen to one pod while no daemon runs. Each says what
// the reason has to name.
var damages = map[string]struct {
	says string
	pod  func(*runtimeapi.PodSandboxConfig)
	do   func(n *node.Node, id string)
}{
	"record is cut short": {says: "record", do: func(n *node.Node, id string) {
		editRecords(n, func(pods *bbolt.Bucket) error {
			return pods.Put([]byte(id), pods.Get([]byte(id))[:100])
		})
	}},
	"record is of a newer version": {says: "newer fairlead", pod: node.SharedPID, do: func(n *node.Node, id string) {
		editRecords(n, func(pods *bbolt.Bucket) error {
			return pods.Put([]byte(id), []byte(`{"version":99,"id":"`+id+`"}`))
		})
	}},
	"record is gone": {says: "no record", do: func(n *node.Node, id string) {
		editRecords(n, func(pods *bbolt.Bucket) error { return pods.Delete([]byte(id)) })
	}},
	"folder is gone": {says: "folder", do: func(n *node.Node, id string) {
		dir := filepath.Join(n.State, "pods", id)
		unmountBelow(n.T, dir)
		if err := os.RemoveAll(dir); err != nil {
			n.T.Fatal(err)
		}
	}},
	"folder is unreadable": {says: "ns: not a directory", do: func(n *node.Node, id string) {
		ns := filepath.Join(n.State, "pods", id, "ns")
		unmountBelow(n.T, ns)
		if err := os.RemoveAll(ns); err != nil {
			n.T.Fatal(err)
		}
		if err := os.WriteFile(ns, nil, 0o600); err != nil {
			n.T.Fatal(err)
		}
	}},
	"cgroup is gone": {says: "cgroup", do: func(n *node.Node, id string) { dropCgroups(n.T, id) }},
}

// victim is a pod that is about to be damaged.
type victim struct {
	*node.Sandbox
	c    *node.Container
	pid  int
	says string
}

// However a pod is damaged while no daemon runs, it alone is Unknown and says
// why, the others go on, and stop and remove free all that it has.
func TestDamageIsOnePodsTrouble(t *testing.T) {
	t.Parallel()
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		good, goodCtr := inhabited(n, h)
		hurt := map[string]victim{}
		for name, d := range damages {
			change := d.pod
			if change == nil {
				change = func(*runtimeapi.PodSandboxConfig) {}
			}
			s, c := inhabited(n, h, change)
			hurt[name] = victim{s, c, pidOf(c), d.says}
		}
		n.Kill(syscall.SIGKILL)
		for name, d := range damages {
			d.do(n, hurt[name].ID)
		}
		n.Start()
		allObserved(n)
		for name, v := range hurt {
			t.Run(name, func(t *testing.T) {
				outer := n.T
				n.T = t
				defer func() { n.T = outer }()
				wantUnknown(n, v)
			})
		}
		if r, d := inspect(n, good.ID); r.Status.State != runtimeapi.PodSandboxState_SANDBOX_READY || d.State != "Running" {
			t.Errorf("the good pod is %+v", d)
		}
		if got := goodCtr.Exec("echo", "here"); strings.TrimSpace(got) != "here" {
			t.Errorf("exec in the good pod: %q", got)
		}
		n.RunPod(h).Remove()
		for name, v := range hurt {
			v.Remove()
			if lives(v.pid) {
				t.Errorf("%s: its container runs on", name)
			}
		}
		goodCtr.Exec("true")
		good.Remove()
		var left []string
		node.Eventually(t, "everything of the pods is gone", func() bool {
			left = n.OfPods()
			return len(left) == 0
		})
	})
}

// lives says whether a process is there and no zombie.
func lives(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// allObserved waits until the daemon has observed every pod.
func allObserved(n *node.Node) {
	n.T.Helper()
	node.Eventually(n.T, "all pods are observed", func() bool { return len(recovering(n)) == 0 })
}

// recovering are the pods that the daemon has not observed yet.
func recovering(n *node.Node) []string {
	n.T.Helper()
	r, err := n.Runtime.Status(n.Ctx(), &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		n.T.Fatal(err)
	}
	var ids []string
	if err := json.Unmarshal([]byte(r.Info["recovering"]), &ids); err != nil {
		n.T.Fatalf("%v: %q", err, r.Info["recovering"])
	}
	return ids
}

// wantUnknown checks everything by which people and kubelets see a pod.
func wantUnknown(n *node.Node, v victim) {
	t := n.T
	t.Helper()
	r, d := inspect(n, v.ID)
	if r.Status.State != runtimeapi.PodSandboxState_SANDBOX_NOTREADY || d.State != "Unknown" || !strings.Contains(d.Reason, v.says) {
		t.Errorf("it is %s, %+v", r.Status.State, d)
	}
	m := r.Status.Metadata
	if m.Name != v.Config.Metadata.Name || m.Uid != v.Config.Metadata.Uid || m.Namespace != v.Config.Metadata.Namespace || r.Status.CreatedAt <= 0 {
		t.Errorf("its owner cannot know it: %+v, created %d", m, r.Status.CreatedAt)
	}
	byLabel, err := n.Runtime.ListPodSandbox(n.Ctx(), &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{uidLabel: v.Config.Metadata.Uid}},
	})
	if err != nil || len(byLabel.Items) != 1 || byLabel.Items[0].Id != v.ID {
		t.Errorf("a kubelet does not find it by its label: %v, %v", byLabel, err)
	}
	if len(r.ContainersStatuses) != 1 || r.ContainersStatuses[0].Metadata.Name != v.c.Config.Metadata.Name {
		t.Fatalf("containers: %v", r.ContainersStatuses)
	}
	// The container was observed alive, so it is known to run.
	if c := r.ContainersStatuses[0]; c.State != runtimeapi.ContainerState_CONTAINER_RUNNING || !lives(v.pid) {
		t.Errorf("its container is %s, %s: %s", c.State, c.Reason, c.Message)
	}
	if _, err := v.TryCreate(sleeper()); err == nil {
		t.Error("it takes containers")
	}
	out, err := n.CLI("ps", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var pods []struct{ ID, State, Reason string }
	if err := json.Unmarshal([]byte(out), &pods); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		if p.ID == v.ID && (p.State != "Unknown" || !strings.Contains(p.Reason, v.says)) {
			t.Errorf("fairlead ps: %+v", p)
		}
	}
}
