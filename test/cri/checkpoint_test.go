package cri

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// counting counts in a file and on its output.
const counting = `echo old >/changed; i=0; while :; do i=$((i+1)); echo $i; echo $i >/count; usleep 10000; done`

// checkpoints says whether a handler can make any, or why not, once it was tried.
func checkpoints(t *testing.T, n *node.Node, handler string) (able bool, why string) {
	t.Helper()
	node.Eventually(t, "handler "+handler+" was tried", func() bool {
		var unsure bool
		able, why, unsure = knownOfCheckpoints(t, n, handler)
		return able || why != "" && !unsure
	})
	return able, why
}

func knownOfCheckpoints(t *testing.T, n *node.Node, handler string) (able bool, why string, unsure bool) {
	t.Helper()
	st, err := n.Runtime.Status(n.Ctx(), &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	var list map[string]struct {
		Features struct {
			Checkpoints   bool   `json:"checkpoints"`
			NoCheckpoints string `json:"noCheckpoints"`
			Unsure        bool   `json:"unsure"`
		} `json:"features"`
	}
	if err := json.Unmarshal([]byte(st.Info["handlers"]), &list); err != nil {
		t.Fatal(err)
	}
	f := list[handler].Features
	return f.Checkpoints, f.NoCheckpoints, f.Unsure
}

// archive are the files of a checkpoint, by name.
func archive(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return untar(t, f)
}

func untar(t *testing.T, from io.Reader) map[string]string {
	t.Helper()
	out := map[string]string{}
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = string(data)
	}
}

// frozen says whether the processes of a container are stopped.
func frozen(c *node.Container) bool {
	state := c.CgroupFile("freezer", "freezer.state", "cgroup.events")
	return state == "FROZEN" || strings.Contains(state, "frozen 1")
}

// goesOn fails unless the container counts on.
func goesOn(t *testing.T, c *node.Container) {
	t.Helper()
	if frozen(c) {
		t.Error("it is frozen")
	}
	before := c.Exec("cat", "/count")
	node.Eventually(t, "the container counts on", func() bool {
		now := c.Exec("cat", "/count")
		return now != before && now != ""
	})
}

// stage is a node whose runc has a stand-in for "runc checkpoint", so that
// everything around that can be tested where there is no criu. While the file
// hold is there it does not end, and with the file fail it fails.
type stage struct {
	*node.Node
	dir string
	out string // for checkpoints
}

const standIn = `#!/bin/sh
dir=%[1]q
for last; do [ "$last" = checkpoint ] && mine=1; done
[ -n "$mine" ] || exec %[2]q "$@"
while [ $# -gt 1 ]; do
	case $1 in --image-path) image=$2;; --work-path) work=$2;; --leave-running) leave=1;; esac
	shift
done
[ -n "$leave" ] || exit 1
mkdir -p "$image"
echo memory >"$image/pages-1.img"
cp %[3]q/containers/"$last"/criu.conf "$work/dump.log"
echo $$ >"$dir/pid.new" && mv "$dir/pid.new" "$dir/pid"
if [ -e "$dir/fail" ]; then
	echo "(00.1) Error (criu/x.c:1): told to fail" >>"$work/dump.log"
	echo '{"level":"error","msg":"criu failed: type DUMP errno 0"}' >&2
	exit 1
fi
while [ -e "$dir/hold" ]; do sleep 0.02; done
`

func newStage(t *testing.T) *stage {
	t.Helper()
	runc, err := exec.LookPath("runc")
	if err != nil {
		t.Skipf("needs runc: %v", err)
	}
	dir := t.TempDir()
	s := &stage{dir: dir, out: t.TempDir()}
	write := func(n *node.Node) error {
		n.Env = append(n.Env, "PATH="+dir+":"+os.Getenv("PATH"))
		return errors.Join(
			os.WriteFile(filepath.Join(dir, "criu"), []byte("#!/bin/sh\n"), 0o755),
			os.WriteFile(filepath.Join(dir, "standin"), fmt.Appendf(nil, standIn, dir, runc, n.State), 0o755),
		)
	}
	s.Node = node.Start(t, fmt.Sprintf("[handlers.runc]\npath = %q\n", filepath.Join(dir, "standin")), write)
	s.Pull(node.Busybox)
	if able, why := checkpoints(t, s.Node, "runc"); !able {
		t.Fatalf("with a criu that works there are no checkpoints: %s", why)
	}
	return s
}

func (s *stage) set(t *testing.T, name string) (clear func()) {
	t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	clear = func() { _ = os.Remove(path) }
	t.Cleanup(clear)
	return clear
}

// counts starts a container that counts.
func (s *stage) counts(t *testing.T, in *node.Sandbox) *node.Container {
	t.Helper()
	c := in.Start(node.Script(counting))
	node.Eventually(t, "the container counts", func() bool { return strings.Contains(c.Log(), "\n3\n") })
	return c
}

func (s *stage) checkpoint(c *node.Container, name string, seconds int64) error {
	_, err := s.Runtime.CheckpointContainer(s.Ctx(), &runtimeapi.CheckpointContainerRequest{
		ContainerId: c.ID, Location: filepath.Join(s.out, name), Timeout: seconds,
	})
	return err
}

// writing waits until the stand-in is at work and returns its process.
func (s *stage) writing(t *testing.T) int {
	t.Helper()
	var pid int
	node.Eventually(t, "somebody captures", func() bool {
		text, err := os.ReadFile(filepath.Join(s.dir, "pid"))
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil && pid > 0
	})
	return pid
}

func (s *stage) nothingLeft(t *testing.T, want ...string) {
	t.Helper()
	for _, dir := range []string{s.out, filepath.Join(s.Root, "checkpoints")} {
		entries, err := os.ReadDir(dir)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if dir != s.out {
			want = nil
		}
		if err != nil && !os.IsNotExist(err) || !slices.Equal(names, want) {
			t.Errorf("%s has %q %v, want %q", dir, names, err, want)
		}
	}
}

// gone says whether a process has ended; nobody may have reaped it yet.
func gone(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(text), ") Z ")
}

// Processes and files are those of one moment, at which the container is frozen.
func TestCheckpointArchive(t *testing.T) {
	s := newStage(t)
	in := s.RunPod("runc")
	c := s.counts(t, in)
	release := s.set(t, "hold")
	done := make(chan error, 1)
	go func() { done <- s.checkpoint(c, "c.tar", 0) }()
	s.writing(t)
	if !frozen(c) {
		t.Error("it is captured while it runs")
	}
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	goesOn(t, c)
	s.nothingLeft(t, "c.tar")
	files := archive(t, filepath.Join(s.out, "c.tar"))
	if files["checkpoint/pages-1.img"] != "memory\n" {
		t.Errorf("what was captured is not there: %q", files)
	}
	// criu is told of the output, which is outside of the container.
	var outputs map[string]string
	if err := json.Unmarshal([]byte(files["checkpoint/fairlead-outputs.json"]), &outputs); err != nil || len(outputs) != 2 {
		t.Errorf("its outputs: %v %v", outputs, err)
	}
	if log := files["dump.log"]; strings.Count(log, "external file[") != 2 {
		t.Errorf("criu's options are %q", log)
	}
	var config struct{ ID, Name, Runtime, RootfsImageName string }
	if err := json.Unmarshal([]byte(files["config.dump"]), &config); err != nil || config.ID != c.ID || config.Runtime != "runc" || config.Name != c.Config.Metadata.Name || config.RootfsImageName == "" {
		t.Errorf("config.dump: %+v %v", config, err)
	}
	var spec struct{ Annotations map[string]string }
	if err := json.Unmarshal([]byte(files["spec.dump"]), &spec); err != nil || spec.Annotations["io.kubernetes.cri.sandbox-name"] != in.Config.Metadata.Name {
		t.Errorf("spec.dump: %+v %v", spec, err)
	}
	var st struct{ ID string }
	if err := json.Unmarshal([]byte(files["status.dump"]), &st); err != nil || st.ID != c.ID {
		t.Errorf("status.dump: %+v %v", st, err)
	}
	diff := untar(t, strings.NewReader(files["rootfs-diff.tar"]))
	// It may be captured between the moments in which its shell empties the file and writes to it.
	if _, counted := diff["count"]; diff["changed"] != "old\n" || !counted {
		t.Errorf("what it has changed: %q", diff)
	}
	if err := s.checkpoint(c, "c.tar", 0); status.Code(err) != codes.AlreadyExists {
		t.Errorf("onto the same path: %v", err)
	}
	in.Remove()
}

// A failure is told in criu's words, and the container does not notice it.
func TestCheckpointFails(t *testing.T) {
	s := newStage(t)
	in := s.RunPod("runc")
	c := s.counts(t, in)
	s.set(t, "fail")
	if err := s.checkpoint(c, "c.tar", 0); err == nil || !strings.Contains(err.Error(), "told to fail") {
		t.Errorf("%v", err)
	}
	goesOn(t, c)
	s.nothingLeft(t)
	in.Remove()
}

// At the end of the time that the caller allows, whoever captures is killed.
func TestCheckpointTakesTooLong(t *testing.T) {
	s := newStage(t)
	in := s.RunPod("runc")
	c := s.counts(t, in)
	s.set(t, "hold")
	if err := s.checkpoint(c, "c.tar", 2); status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "within 2s") {
		t.Errorf("%v", err)
	}
	if pid := s.writing(t); !gone(pid) {
		t.Errorf("process %d still captures", pid)
	}
	goesOn(t, c)
	s.nothingLeft(t)
	in.Remove()
}

// A daemon that is killed leaves a frozen container and somebody who captures it.
// The next one sees to both.
func TestDaemonDiesDuringACheckpoint(t *testing.T) {
	s := newStage(t)
	in := s.RunPod("runc")
	c := s.counts(t, in)
	s.set(t, "hold")
	done := make(chan error, 1)
	go func() { done <- s.checkpoint(c, "c.tar", 0) }()
	pid := s.writing(t)
	s.Kill(syscall.SIGKILL)
	if err := <-done; err == nil {
		t.Error("it was made by a daemon that is dead")
	}
	if gone(pid) || !frozen(c) {
		t.Fatal("there is nothing to see to")
	}
	s.Start()
	node.Eventually(t, "the container is thawed", func() bool { return gone(pid) && !frozen(c) })
	goesOn(t, c)
	node.Eventually(t, "the folder is gone", func() bool {
		left, err := os.ReadDir(filepath.Join(s.Root, "checkpoints"))
		return err == nil && len(left) == 0
	})
	s.nothingLeft(t)
	in.Remove()
}

// Nobody has to wait for a checkpoint before a container ends.
func TestStopDuringACheckpoint(t *testing.T) {
	s := newStage(t)
	in := s.RunPod("runc")
	c := s.counts(t, in)
	s.set(t, "hold")
	done := make(chan error, 1)
	go func() { done <- s.checkpoint(c, "c.tar", 0) }()
	s.writing(t)
	c.Stop(0)
	if err := <-done; status.Code(err) != codes.FailedPrecondition {
		t.Errorf("%v", err)
	}
	s.nothingLeft(t)
	in.Remove()
}

// All containers of a pod are captured at one moment.
func TestCheckpointOfAPod(t *testing.T) {
	s := newStage(t)
	in := s.RunPod("runc")
	first, second, other := s.counts(t, in), s.counts(t, in), s.counts(t, in)
	release := s.set(t, "hold")
	done := make(chan error, 1)
	ask := func(ids ...string) error {
		_, err := s.Runtime.CheckpointPod(s.Ctx(), &runtimeapi.CheckpointPodRequest{PodSandboxId: in.ID, OutputPath: s.out, ContainerIds: ids})
		return err
	}
	go func() { done <- ask(first.ID, second.ID) }()
	s.writing(t)
	if !frozen(first) || !frozen(second) {
		t.Error("not all are frozen while the first is captured")
	}
	if frozen(other) {
		t.Error("one is frozen that nobody asked for")
	}
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, c := range []*node.Container{first, second, other} {
		goesOn(t, c)
	}
	s.nothingLeft(t, slices.Sorted(slices.Values([]string{first.ID, second.ID, "pod.dump", "pod.options"}))...)
	for _, name := range []string{"checkpoint/pages-1.img", "config.dump", "spec.dump", "status.dump", "rootfs-diff.tar"} {
		if _, err := os.Stat(filepath.Join(s.out, second.ID, name)); err != nil {
			t.Error(err)
		}
	}
	if err := ask(first.ID); status.Code(err) != codes.InvalidArgument {
		t.Errorf("into the same folder: %v", err)
	}
	in.Remove()
}

// Where no checkpoint can be made, the handler and the call say why.
func TestNoCheckpoints(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		able, why := checkpoints(t, n, h)
		if able {
			t.Skip("this host makes checkpoints")
		}
		s := n.RunPod(h)
		c := s.Start(node.Script("sleep 1000"))
		_, err := n.Runtime.CheckpointContainer(n.Ctx(), &runtimeapi.CheckpointContainerRequest{ContainerId: c.ID, Location: filepath.Join(t.TempDir(), "c.tar")})
		if status.Code(err) != codes.Unimplemented || why == "" || !strings.Contains(err.Error(), why) {
			t.Errorf("%v; the handler says %q", err, why)
		}
		s.Remove()
	})
}

// With a real criu the container's memory is in the checkpoint, and no line of
// its output is missing afterwards.
func TestCheckpointByCriu(t *testing.T) {
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	if able, why := checkpoints(t, n, "runc"); !able {
		t.Skipf("needs runc and a criu that works on this kernel: %s", why)
	}
	s, out := n.RunPod("runc"), t.TempDir()
	for name, change := range map[string]func(*containerConfig){
		"plain": func(*containerConfig) {},
		"input": func(c *containerConfig) { c.Stdin = true },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := node.Script("secret=needle-in-$((40+2)); " + counting)
			change(cfg)
			c := s.Start(cfg)
			node.Eventually(t, "the container counts", func() bool { return strings.Contains(c.Log(), "\n3\n") })
			to := filepath.Join(out, name+".tar")
			for i := range 2 { // and once more: the first leaves nothing in the way
				if _, err := n.Runtime.CheckpointContainer(n.Ctx(), &runtimeapi.CheckpointContainerRequest{ContainerId: c.ID, Location: fmt.Sprint(to, i)}); err != nil {
					t.Fatal(err)
				}
				goesOn(t, c)
			}
			files := archive(t, to+"0")
			if _, ok := files["checkpoint/inventory.img"]; !ok || !strings.Contains(files["checkpoint/pages-1.img"], "needle-in-42") {
				t.Error("its memory is not in the checkpoint")
			}
			wantNumbers(t, c)
			c.Stop(0)
			c.Remove()
		})
	}
	s.Remove()
}

// wantNumbers fails if the container's output has not every number in its order.
func wantNumbers(t *testing.T, c *node.Container) {
	t.Helper()
	want := 0
	for line := range strings.Lines(c.Log()) {
		if want++; strings.TrimSpace(line) != strconv.Itoa(want) {
			t.Fatalf("after %d comes %q", want-1, line)
		}
	}
}

// A pod goes on from its checkpoint after it has gone: where its processes were,
// with what they had written, under the monitor of this node.
func TestRestoreByCriu(t *testing.T) {
	n := node.Start(t, "[checkpoints]\nrestore = true\n")
	n.Pull(node.Busybox)
	if able, why := checkpoints(t, n, "runc"); !able {
		t.Skipf("needs runc and a criu that works on this kernel: %s", why)
	}
	s, out := n.RunPod("runc"), t.TempDir()
	first, second := s.Start(node.Script(counting)), s.Start(node.Script(counting))
	for _, c := range []*node.Container{first, second} {
		node.Eventually(t, "the container counts", func() bool { return strings.Contains(c.Log(), "\n3\n") })
	}
	if _, err := n.Runtime.CheckpointPod(n.Ctx(), &runtimeapi.CheckpointPodRequest{PodSandboxId: s.ID, OutputPath: out, ContainerIds: []string{first.ID, second.ID}}); err != nil {
		t.Fatal(err)
	}
	s.Remove()
	cfg := n.PodConfig()
	cfg.Hostname = s.Config.Hostname
	r, err := n.Runtime.RestorePod(n.Ctx(), &runtimeapi.RestorePodRequest{
		CheckpointPath: out, Config: cfg, RuntimeHandler: "runc", ContainerConfigs: []*runtimeapi.ContainerConfig{second.Config, first.Config},
	})
	if err != nil {
		t.Fatal(err)
	}
	n.Know(r.PodSandboxId)
	again := &node.Sandbox{Node: n, ID: r.PodSandboxId, Config: cfg}
	for i, ctr := range r.RestoredContainers {
		n.Know(ctr.ContainerId)
		c := &node.Container{Sandbox: again, ID: ctr.ContainerId, Config: []*runtimeapi.ContainerConfig{second.Config, first.Config}[i]}
		if st := c.Status(); st.State != runtimeapi.ContainerState_CONTAINER_CREATED || ctr.Name != c.Config.Metadata.Name {
			t.Errorf("%s is %s", ctr.Name, st.State)
		}
		if err := c.TryStart(); err != nil {
			t.Fatal(err)
		}
		goesOn(t, c)
		node.Eventually(t, "it writes", func() bool { return strings.Count(c.Log(), "\n") > 3 })
		from, _, _ := strings.Cut(c.Log(), "\n")
		if at, err := strconv.Atoi(from); err != nil || at < 3 {
			t.Errorf("it begins with %q", from)
		}
		if got := c.Exec("cat", "/changed"); got != "old\n" {
			t.Errorf("what it had written: %q", got)
		}
		c.Stop(0)
		if st := c.Status(); st.ExitCode != 137 {
			t.Errorf("it ends with %d", st.ExitCode)
		}
	}
	again.Remove()
}

// Nobody restores anything unless the configuration allows it.
func TestRestoreIsOff(t *testing.T) {
	s := newStage(t)
	_, err := s.Runtime.RestorePod(s.Ctx(), &runtimeapi.RestorePodRequest{
		CheckpointPath: s.out, Config: s.PodConfig(), ContainerConfigs: []*runtimeapi.ContainerConfig{node.Script("sleep 1")},
	})
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "checkpoints.restore") {
		t.Errorf("%v", err)
	}
	if l, err := s.Runtime.ListPodSandbox(s.Ctx(), &runtimeapi.ListPodSandboxRequest{}); err != nil || len(l.Items) != 0 {
		t.Errorf("%v %v", l, err)
	}
}
