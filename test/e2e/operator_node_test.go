package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/test/e2e/cluster"
)

const (
	containerdFiles = "/etc/containerd"
	installed       = "/opt/bin" // on a machine image that has no place of its own for programs
	installerState  = "/var/lib/fairlead-installer"
	restartProgram  = "/etc/e2e/restart-containerd"

	nodePool  = "on-node"
	kataClass = "kata-qemu"
)

// The operator with a node that has a kubelet: the pods of its DaemonSets are started by
// that, with the mounts and rights that they ask for, and change the containerd below
// it. Two types come, one of them is upgraded under a pod, and both go. A pod that has
// nothing to do with it runs on all the time.
func TestOperatorOnNode(t *testing.T) {
	needOperator(t)
	if *kind != string(cluster.Containerd) || *guest != "" {
		t.Skip("-runtime containerd: make e2e-operator RUN=TestOperatorOnNode RUNTIME=containerd runs this")
	}
	was := patience
	patience = 10 * time.Minute // containerd is restarted once a minute at most, and not for two types at once
	t.Cleanup(func() { patience = was })
	n := newInhabited(t)
	for _, part := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"install", n.install}, {"pods", n.pods}, {"upgrade", n.upgrade}, {"remove", n.remove},
	} {
		if !t.Run(part.name, part.do) {
			explain(t)
			return
		}
		if now := containers(t, []string{"trusted"}); now != n.trusted {
			t.Fatalf("after %s the trusted pod, which was %s, is %s", part.name, n.trusted, now)
		}
	}
}

// inhabited is a node with a kubelet, on which the installer works and pods live.
type inhabited struct {
	*crew
	image   string
	before  map[string]string // containerd's configuration
	trusted string            // the containers of the pod that stays
	starts  atomic.Int32      // of containerd, by its supervisor
}

func newInhabited(t *testing.T) *inhabited {
	t.Helper()
	n := &inhabited{image: imageOf(t, "agnhost")}
	// The programs of runtimes are the node's own, and not this machine's.
	if err := unix.Mount("e2e", filepath.Dir(installed), "tmpfs", 0, "mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(filepath.Dir(installed), unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	n.configure(t)
	n.supervise(t)
	n.crew = bareCrew(t)
	n.run(t, "trusted", "")
	n.trusted = containers(t, []string{"trusted"})
	apply(t, release(t, kataPayload(t, "1"), gvisorPayload(t, "1")))
	t.Cleanup(func() {
		if _, err := node.Kubectl(context.Background(), "delete", "runtimepayload", "--all"); err != nil {
			t.Error(err)
		}
	})
	n.start(t, accountKubeconfig(t, operatorNamespace, "fairlead-operator"))
	return n
}

// restartContainerd does what systemctl restart containerd does. Whoever supervises
// containerd starts it again.
const restartContainerd = `#!/bin/sh
for p in /proc/[0-9]*; do
	name=$(cat "$p/comm" 2>/dev/null)
	[ "$name" = containerd ] || continue
	kill -TERM "${p#/proc/}" || exit 1
	while kill -0 "${p#/proc/}" 2>/dev/null; do sleep 0.05; done
	exit 0
done
echo "containerd does not run"
exit 1
`

// configure has containerd's configuration as an admin left it.
func (n *inhabited) configure(t *testing.T) {
	t.Helper()
	main := filepath.Join(containerdFiles, "config.toml")
	text, err := os.ReadFile(main)
	if err != nil {
		t.Fatal(err)
	}
	admin := "# Of this node. Ask ops before you change it.\n" + string(text) + "\n  # mixed tabs\tand blanks, and no newline at the end"
	err = errors.Join(os.WriteFile(main, []byte(admin), 0o640), os.Chmod(main, 0o640), node.Machine().Write(restartProgram, restartContainerd))
	if err != nil {
		t.Fatal(err)
	}
	n.before = tree(t, containerdFiles)
}

// supervise starts containerd again whenever it ends, as systemd does.
func (n *inhabited) supervise(t *testing.T) {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			ended, err := node.Daemon.Ended()
			if err == nil && ended {
				err = node.Daemon.Start()
				n.starts.Add(1)
			}
			if err != nil {
				t.Errorf("supervise containerd: %v", err)
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	t.Cleanup(func() {
		end()
		running.Wait()
	})
}

// explain tells of a test that has failed what the cluster knows.
func explain(t *testing.T) {
	t.Helper()
	for _, args := range [][]string{
		{"get", "workerpools,containerruntimes,daemonsets,pods", "-A", "-o", "wide"},
		{"get", "containerruntimes", "-A", "-o", "jsonpath={range .items[*]}{.metadata.name}: {.status}{\"\\n\"}{end}"},
		{"describe", "pods", "-A"},
		{"logs", "-n", operatorNamespace, "-l", "operator.fairlead.run/work", "--tail", "50", "--prefix"},
	} {
		out, err := node.Kubectl(context.Background(), args...)
		t.Logf("%v: %v\n%s", args, err, out)
	}
}

// run makes a pod of a class, or of none, and waits for it.
func (n *inhabited) run(t *testing.T, name, class string) {
	t.Helper()
	spec := object{"terminationGracePeriodSeconds": 0, "containers": []object{{"name": "main", "image": n.image, "args": []string{"pause"}}}}
	if class != "" {
		spec["runtimeClassName"] = class
	}
	n.must(t, http.MethodPost, podsOf("default"), object{"metadata": object{"name": name}, "spec": spec}, nil)
	n.whole.Cleanup(func() {
		if _, err := node.Kubectl(context.Background(), "delete", "pod", name, "--ignore-not-found", "--timeout", patience.String()); err != nil {
			t.Error(err)
		}
	})
	kubectl(t, "wait", "--for=condition=Ready", "pod/"+name, "--timeout", patience.String())
}

// tree is what is in a folder: modes, and what is in files.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		all[path] = info.Mode().String() + "\n"
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			all[path] += string(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// foreign is a tree without the files and lines of the installer, which all name it.
func foreign(all map[string]string) map[string]string {
	out := map[string]string{}
	for path, text := range all {
		lines := slices.DeleteFunc(strings.SplitAfter(text, "\n"), func(l string) bool { return strings.Contains(l, "fairlead") })
		if strings.Contains(path, "fairlead") {
			continue
		}
		out[path] = strings.Join(lines, "")
	}
	return out
}

// install has the pool's runtimes come to the node.
func (n *inhabited) install(t *testing.T) {
	apply(t, fmt.Sprintf(`apiVersion: fairlead.run/v1alpha1
kind: WorkerPool
metadata: {name: %s}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  machineImage: {name: e2e}
  restart: {method: command, command: [%s]}
  cri:
    name: containerd
    containerRuntimes: [{type: gvisor}, {type: kata-containers}]
`, nodePool, cluster.NodeName, restartProgram))
	n.ready(t, nodePool)
	labels := n.labels(t)
	for _, want := range []string{"ready.fairlead.run/gvisor", "ready.fairlead.run/kata-containers"} {
		if labels[want] != "true" {
			t.Errorf("label %s is missing: %v", want, labels)
		}
	}
	if labels[handlerLabel] != "gvisor" || labels["handler.fairlead.run/"+kataClass] != "kata-containers" {
		t.Errorf("labels of handlers: %v", labels)
	}
	if got := n.starts.Load(); got != 2 {
		t.Errorf("containerd was restarted %d times for two types", got)
	}
	now := foreign(tree(t, containerdFiles))
	delete(now, filepath.Join(containerdFiles, "conf.d"))
	if !maps.Equal(now, n.before) {
		t.Errorf("beside what is ours the configuration was\n%q\nand is\n%q", n.before, now)
	}
	confined(t)
}

// labels are those of the node.
func (n *inhabited) labels(t *testing.T) map[string]string {
	t.Helper()
	var got corev1.Node
	n.must(t, http.MethodGet, "/api/v1/nodes/"+cluster.NodeName, nil, &got)
	return got.Labels
}

// confined looks at the installers of both types as the kernel sees them: they have the
// rights that docs/operator.md says, and no others.
func confined(t *testing.T) {
	t.Helper()
	found := 0
	for _, pid := range runningFrom("/fairlead") {
		status, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
		if err != nil {
			t.Fatal(err)
		}
		// CHOWN, DAC_OVERRIDE, FOWNER, SYS_CHROOT and SYS_PTRACE.
		for _, want := range []string{"CapEff:\t00000000000c000b", "CapBnd:\t00000000000c000b", "NoNewPrivs:\t1", "Seccomp:\t2"} {
			if !strings.Contains(string(status), want+"\n") {
				t.Errorf("it is not so that %s:\n%s", want, status)
			}
		}
		mounted(t, pid)
		found++
	}
	if found != 2 {
		t.Errorf("%d installers run", found)
	}
}

// mounted looks at the places of the node that an installer sees, of which it writes to
// some.
func mounted(t *testing.T, pid string) {
	t.Helper()
	options := map[string]string{}
	for line := range strings.Lines(mustRead(t, filepath.Join("/proc", pid, "mountinfo"))) {
		fields := strings.Fields(line)
		options[fields[4]], _, _ = strings.Cut(fields[5], ",") // the last one is on top
	}
	for path, want := range map[string]string{
		"": "ro", "/run/containerd": "ro", "/run/fairlead-installer": "ro", containerdFiles: "rw", installed: "rw", installerState: "rw",
	} {
		if got := options["/host"+path]; got != want {
			t.Errorf("/host%s is mounted %q, and not %s", path, got, want)
		}
	}
	if options["/"] != "ro" {
		t.Errorf("the root of the container is %q", options["/"])
	}
}

// runningFrom are the processes whose programs are at a path or below it, as their own
// mounts have them.
func runningFrom(path string) (pids []string) {
	links, _ := filepath.Glob("/proc/[0-9]*/exe") // the pattern is sound
	for _, l := range links {
		if at, err := os.Readlink(l); err == nil && (at == path || strings.HasPrefix(at, path+"/")) {
			pids = append(pids, filepath.Base(filepath.Dir(l)))
		}
	}
	return pids
}

// versions are the folders of the versions of a type on the node, by their numbers.
func versions(t *testing.T, typ string) map[string]string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(installed, typ, "[0-9]*-*"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, dir := range found {
		number, _, _ := strings.Cut(filepath.Base(dir), "-")
		out[number] = dir
	}
	return out
}

// pods run through the new handlers, each on the programs that were installed.
func (n *inhabited) pods(t *testing.T) {
	n.run(t, "machine", kataClass)
	if got := kubectl(t, "get", "pod", "machine", "-o", "jsonpath={.spec.overhead.memory} {.spec.nodeSelector}"); !strings.HasPrefix(got, "320Mi ") || !strings.Contains(got, "handler.fairlead.run/"+kataClass) {
		t.Errorf("the class gave it %s", got)
	}
	if dir := versions(t, "kata-containers")["1"]; dir == "" || len(runningFrom(dir)) == 0 {
		t.Errorf("nothing runs from %q", dir)
	}
	n.run(t, "sandbox", "gvisor")
	if dir := versions(t, "gvisor")["1"]; dir == "" || len(runningFrom(dir)) == 0 {
		t.Errorf("nothing runs from %q", dir)
	}
	here := mustRead(t, "/proc/version")
	if there := kubectl(t, "exec", "sandbox", "--", "cat", "/proc/version"); there == here || !strings.HasPrefix(there, "Linux") {
		t.Errorf("in gVisor the kernel is %q", there)
	}
}

// upgrade brings another version beside one on which a pod is, and that goes with the
// pod.
func (n *inhabited) upgrade(t *testing.T) {
	before := containers(t, []string{"machine", "sandbox"})
	apply(t, release(t, kataPayload(t, "2")))
	n.verified(t, "kata-containers", "2")
	n.ready(t, nodePool)
	if now := containers(t, []string{"machine", "sandbox"}); now != before {
		t.Errorf("the pods of the classes were %s and are %s", before, now)
	}
	n.run(t, "newer", kataClass)
	both := versions(t, "kata-containers")
	if len(runningFrom(both["1"])) == 0 || len(runningFrom(both["2"])) == 0 {
		t.Errorf("not both versions are run from: %v", both)
	}
	if dir := versions(t, "gvisor"); len(dir) != 1 || n.starts.Load() != 3 {
		t.Errorf("gVisor is in %v, and containerd was restarted %d times", dir, n.starts.Load())
	}
	kubectl(t, "delete", "pod", "machine", "--timeout", patience.String())
	eventually(t, func() error {
		if now := versions(t, "kata-containers"); len(now) != 1 || now["2"] == "" {
			return fmt.Errorf("after the last pod of the old version there are %v", now)
		}
		return nil
	})
	if len(runningFrom(both["2"])) == 0 {
		t.Error("nothing runs from the new version any more")
	}
}

// verified waits until the node has a version of a type.
func (n *inhabited) verified(t *testing.T, typ, version string) {
	t.Helper()
	eventually(t, func() error {
		var got gardener.ContainerRuntime
		n.must(t, http.MethodGet, runtimePath+"/"+typ+"-"+nodePool, nil, &got)
		last := got.Status.LastOperation
		if last == nil || last.State != gardener.StateSucceeded || !strings.Contains(last.Description, typ+" "+version+" was verified") {
			return fmt.Errorf("%s is not at version %s: %+v %+v", typ, version, last, got.Status.LastError)
		}
		return nil
	})
}

// remove waits for the pods of the classes, and leaves the node as it was.
func (n *inhabited) remove(t *testing.T) {
	n.must(t, http.MethodDelete, poolPath+"/"+nodePool, nil, nil)
	for typ, pod := range map[string]string{"gvisor": "sandbox", "kata-containers": "newer"} {
		eventually(t, func() error {
			var got gardener.ContainerRuntime
			n.must(t, http.MethodGet, runtimePath+"/"+typ+"-"+nodePool, nil, &got)
			if e := got.Status.LastError; e == nil || !slices.Contains(e.Codes, gardener.CodeCleanup) || !strings.Contains(e.Description, "default/"+pod) {
				return fmt.Errorf("%+v", got.Status)
			}
			return nil
		})
	}
	for _, pod := range []string{"sandbox", "newer"} {
		if out := kubectl(t, "get", "pod", pod, "-o", "jsonpath={.status.phase}"); out != "Running" {
			t.Errorf("pod %s, whose runtime is to go, is %s", pod, out)
		}
	}
	kubectl(t, "delete", "pod", "sandbox", "newer", "--timeout", patience.String())
	n.gone(t, poolPath+"/"+nodePool, classPath+"/gvisor", classPath+"/"+kataClass)
	if left := ofOperator(n.labels(t)); len(left) > 0 {
		t.Errorf("labels of the node are left: %v", left)
	}
	eventually(t, func() error {
		if out, err := node.Kubectl(t.Context(), "get", "daemonsets,pods", "-n", operatorNamespace, "-o", "name"); err != nil || out != "" {
			return fmt.Errorf("left is %s %w", out, err)
		}
		return nil
	})
	if now := tree(t, containerdFiles); !maps.Equal(now, n.before) {
		t.Errorf("the configuration was\n%q\nand is\n%q", n.before, now)
	}
	for _, dir := range []string{installed, installerState} {
		if left := tree(t, dir); len(left) != 1 {
			t.Errorf("left is %v", slices.Sorted(maps.Keys(left)))
		}
	}
	if got := n.starts.Load(); got != 5 {
		t.Errorf("containerd was restarted %d times: twice to install, once to upgrade, and twice to remove", got)
	}
	if out := kubectl(t, "get", "events", "-n", operatorNamespace, "--field-selector", "reason=BackOff"); out != "" {
		t.Errorf("installers had to be started again:\n%s", out)
	}
	n.run(t, "afterwards", "")
}
