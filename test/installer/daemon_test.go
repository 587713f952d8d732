package installer

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// release is a daemon that is tested.
type release struct {
	name, program string
	major, minor  int // of containerd's version; 0 is CRI-O
	format        int // version of the admin's configuration of containerd
}

// containerds are the releases of containerd.
func containerds() []release {
	return []release{
		{"2.4", os.Getenv("FAIRLEAD_TEST_CONTAINERD"), 2, 4, 3},
		{"1.7", os.Getenv("FAIRLEAD_TEST_CONTAINERD17"), 1, 7, 2},
		{"1.6", os.Getenv("FAIRLEAD_TEST_CONTAINERD16"), 1, 6, 2},
	}
}

// here are those of the releases that are on this machine.
func here(t *testing.T, all ...release) []release {
	t.Helper()
	var found []release
	for _, r := range all {
		if r.program == "" {
			t.Logf("%s is not tested: the variable for it names no program; make test-installer sets it, for CRI-O once make crio has built it", r.name)
			continue
		}
		found = append(found, r)
	}
	if len(found) == 0 {
		t.Skip("no daemon for this is here; make test-installer builds containerd, and make crio CRI-O")
	}
	return found
}

// releases are those of containerd that are here.
func releases(t *testing.T) []release {
	t.Helper()
	return here(t, containerds()...)
}

// underEach runs a test with each release of containerd, and under with CRI-O, too.
func underEach(t *testing.T, f func(t *testing.T, d *daemon)) {
	t.Helper()
	each(t, releases(t), f)
}

func under(t *testing.T, f func(t *testing.T, d *daemon)) {
	t.Helper()
	each(t, here(t, append(containerds(), crioRelease())...), f)
}

// underBoth runs a test with the newest release of containerd and with CRI-O, where
// what it is about is alike in all releases.
func underBoth(t *testing.T, f func(t *testing.T, d *daemon)) {
	t.Helper()
	each(t, here(t, containerds()[0], crioRelease()), f)
}

func each(t *testing.T, all []release, f func(t *testing.T, d *daemon)) {
	t.Helper()
	for _, r := range all {
		t.Run(r.name, func(t *testing.T) { f(t, start(t, r, "")) })
	}
}

// daemon is one that runs, and which a supervisor starts again when it ends.
type daemon struct {
	*testing.T
	release
	dir        string
	log        *os.File
	supervisor sync.WaitGroup

	mu      sync.Mutex
	broken  bool // it does not come back
	ended   bool
	started int
	cmd     *exec.Cmd
}

func (d *daemon) path(name string) string { return filepath.Join(d.dir, name) }
func (d *daemon) socket() string          { return d.path("cri.sock") }
func (d *daemon) isCRIO() bool            { return d.major == 0 }

// config is the file that the daemon is started with.
func (d *daemon) config() string {
	if d.isCRIO() {
		return d.path("etc/crio.conf")
	}
	return d.path("etc/config.toml")
}

// runtimeName is what the daemon calls itself.
func (d *daemon) runtimeName() string {
	if d.isCRIO() {
		return "cri-o"
	}
	return "containerd"
}

// argv is how the daemon is started.
func (d *daemon) argv() []string {
	if d.isCRIO() {
		return []string{d.program, "--config", d.config(), "--config-dir", d.config() + ".d", "--registries-conf", d.path("registries.conf")}
	}
	return []string{d.program, "--config", d.config()}
}

// plugin is the table of the CRI plugin in configurations of this version.
func (r release) plugin() string {
	switch r.format {
	case 1:
		return `plugins.cri`
	case 2:
		return `plugins."io.containerd.grpc.v1.cri"`
	}
	return `plugins."io.containerd.cri.v1.runtime"`
}

// adminConfig is a configuration of containerd as an admin has it: comments, odd blanks, foreign
// handlers. One of version 1 does not say so.
func (d *daemon) adminConfig() string {
	if d.format == generated {
		return d.generatedConfig()
	}
	head := "# containerd of this machine. Ask ops before you change it.\n"
	if d.format > 1 {
		head += fmt.Sprintf("version = %d   # do not touch\n", d.format)
	}
	head += fmt.Sprintf("\nroot = %q\nstate = %q\n\n", d.path("root"), d.path("state"))
	if d.format < 4 {
		head += fmt.Sprintf("[grpc]\n  address = %q\n\n", d.socket())
	} else {
		head += fmt.Sprintf("[plugins.'io.containerd.server.v1.grpc']\n  address = %q\n[plugins.'io.containerd.server.v1.ttrpc']\n  address = %q\n\n", d.socket(), d.socket()+".ttrpc")
	}
	if d.format < 3 {
		// By the last one containerd 2 pulls images into the snapshotter that is named here.
		head += fmt.Sprintf(`[%s]
  sandbox_image = %q # ours
  restrict_oom_score_adj = true
  max_concurrent_downloads = 4
  [%[1]s.containerd]
    snapshotter = "native"
`, d.plugin(), pause)
	} else {
		head += fmt.Sprintf(`[plugins."io.containerd.cri.v1.images"]
  snapshotter = "native"
  use_local_image_pull = true
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = %q # ours

[%s]
  restrict_oom_score_adj = true
`, pause, d.plugin())
	}
	return head + fmt.Sprintf(`      [%[1]s.containerd.runtimes.runc]
        runtime_type = "io.containerd.runc.v2"
        # mixed tabs	and blanks

      [%[1]s.containerd.runtimes."foreign"]
        runtime_type = "io.containerd.runc.v2"   # of another team

# the end, without a newline`, d.plugin())
}

// start runs a daemon with a configuration, or with the admin's.
func start(t *testing.T, r release, config string) *daemon {
	t.Helper()
	d := &daemon{T: t, release: r, dir: t.TempDir()}
	switch {
	case config != "":
		d.write("etc/config.toml", config)
	case d.isCRIO():
		d.writeCRIO()
	default:
		d.write("etc/config.toml", d.adminConfig())
	}
	d.write("restart", fmt.Sprintf("#!/bin/sh\npid=$(cat %[1]s) || exit 1\nkill -TERM $pid\nn=0\nwhile kill -0 $pid 2>/dev/null && [ $n -lt 200 ]; do sleep 0.05; n=$((n+1)); done\n", d.path("pid")))
	if err := os.Chmod(d.path("restart"), 0o755); err != nil {
		t.Fatal(err)
	}
	var err error
	if d.log, err = os.Create(d.path("log")); err != nil {
		t.Fatal(err)
	}
	d.supervisor.Go(d.supervise)
	t.Cleanup(d.end)
	d.await()
	return d
}

func (d *daemon) write(name, text string) {
	d.Helper()
	if err := os.MkdirAll(filepath.Dir(d.path(name)), 0o755); err != nil {
		d.Fatal(err)
	}
	if err := os.WriteFile(d.path(name), []byte(text), 0o644); err != nil {
		d.Fatal(err)
	}
}

// supervise starts the daemon again whenever it ends, as systemd does.
func (d *daemon) supervise() {
	for {
		d.mu.Lock()
		if d.ended {
			d.mu.Unlock()
			return
		}
		if d.broken {
			d.mu.Unlock()
			time.Sleep(50 * time.Millisecond)
			continue
		}
		argv := d.argv()
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stdout, cmd.Stderr = d.log, d.log
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		// Shims are found beside the programs, as on a node.
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(d.program)+":"+os.Getenv("FAIRLEAD_TEST_SHIMS")+":"+os.Getenv("PATH"))
		err := cmd.Start()
		if err == nil {
			err = os.WriteFile(d.path("pid"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644)
		}
		d.cmd = cmd
		d.started++
		d.mu.Unlock()
		if err != nil {
			d.Errorf("start the daemon: %v", err)
			return
		}
		_ = cmd.Wait()                     // how it ended is in its log
		time.Sleep(100 * time.Millisecond) // one that cannot start is not tried without a pause
	}
}

// breaks says whether the daemon comes back from now on.
func (d *daemon) breaks(is bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = is
}

// starts is how often it was started.
func (d *daemon) starts() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.started
}

func (d *daemon) end() {
	if d.cri().up() {
		d.cri().removeAll(d.T)
	}
	d.mu.Lock()
	d.ended = true
	cmd := d.cmd
	d.mu.Unlock()
	if cmd != nil && cmd.Process != nil {
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}
	d.supervisor.Wait()
	_ = d.log.Close()
	if d.Failed() {
		data, _ := os.ReadFile(d.path("log"))
		lines := strings.Split(strings.TrimSpace(string(data)), "\n")
		d.Logf("the daemon said:\n%s", strings.Join(lines[max(0, len(lines)-12):], "\n"))
	}
	// What it has mounted goes with the namespace of the tests, but is in the way
	// of removing the folder.
	for range 100 {
		out, _ := exec.Command("sh", "-c", "awk '{print $5}' /proc/self/mountinfo | grep '^"+d.dir+"/' | sort -r").Output()
		mounts := strings.Fields(string(out))
		if len(mounts) == 0 {
			break
		}
		for _, m := range mounts {
			_ = syscall.Unmount(m, syscall.MNT_DETACH)
		}
	}
}

// cri is a client of the daemon.
func (d *daemon) cri() client { return client{d.socket()} }

func (d *daemon) await() {
	d.Helper()
	for range 1800 {
		if d.cri().up() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	data, _ := os.ReadFile(d.path("log"))
	d.Fatalf("the daemon does not serve:\n%s", data)
}

// handlers are those that are served.
func (d *daemon) handlers() []string {
	d.Helper()
	all, err := d.cri().handlers()
	if err != nil {
		d.Fatal(err)
	}
	if d.isCRIO() {
		// It has this one by itself where its program is on the machine.
		all = slices.DeleteFunc(all, func(h string) bool { return h == "crun" })
	}
	return all
}

// configFiles is everything in the folder of the configuration.
func (d *daemon) configFiles() map[string]string {
	d.Helper()
	return tree(d.T, d.path("etc"))
}

func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, dir)
		if info.IsDir() {
			all[name+"/"] = info.Mode().String()
			return nil
		}
		data, err := os.ReadFile(path)
		all[name] = info.Mode().String() + "\n" + string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// client asks a CRI runtime.
type client struct{ socket string }

func (c client) with(f func(ctx context.Context, r runtimeapi.RuntimeServiceClient, i runtimeapi.ImageServiceClient) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+c.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	return f(ctx, runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn))
}

func (c client) up() bool {
	_, err := c.handlers()
	return err == nil
}

func (c client) handlers() ([]string, error) {
	var all []string
	err := c.with(func(ctx context.Context, r runtimeapi.RuntimeServiceClient, _ runtimeapi.ImageServiceClient) error {
		s, err := r.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
		if err != nil {
			return err
		}
		all = names(s)
		return nil
	})
	return all, err
}

// namespaces are those that a kubelet gives a pod by default, with the host's network.
var namespaces = &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_CONTAINER}

// pod runs a pod with one container on a handler, and waits until that has said
// what it was asked to say.
func (c client) pod(t *testing.T, name, handler string) string {
	t.Helper()
	id := ""
	err := c.with(func(ctx context.Context, r runtimeapi.RuntimeServiceClient, i runtimeapi.ImageServiceClient) error {
		for _, ref := range []string{pause, node.Busybox} {
			if _, err := i.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}}); err != nil {
				return fmt.Errorf("pull %s: %w", ref, err)
			}
		}
		logs := t.TempDir()
		sandbox := &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "test", Uid: name}, LogDirectory: logs,
			Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: namespaces,
			}},
		}
		s, err := r.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: sandbox, RuntimeHandler: handler})
		if err != nil {
			return fmt.Errorf("run the sandbox: %w", err)
		}
		id = s.GetPodSandboxId()
		made, err := r.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: id, SandboxConfig: sandbox, Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: node.Busybox, UserSpecifiedImage: node.Busybox}, LogPath: "c.log",
			// The first process of a namespace has to want to end.
			Command: []string{"sh", "-c", "trap exit TERM; echo it runs; sleep 3600 & wait"},
			Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: namespaces,
			}},
		}})
		if err != nil {
			return fmt.Errorf("create the container: %w", err)
		}
		if _, err := r.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: made.GetContainerId()}); err != nil {
			return fmt.Errorf("start the container: %w", err)
		}
		for range 300 {
			if data, _ := os.ReadFile(filepath.Join(logs, "c.log")); bytes.Contains(data, []byte("it runs")) {
				return nil
			}
			time.Sleep(100 * time.Millisecond)
		}
		return fmt.Errorf("the container says nothing")
	})
	if err != nil {
		t.Fatalf("pod %s on %q: %v", name, handler, err)
	}
	return id
}

// runs says whether a sandbox is ready and its container runs.
func (c client) runs(t *testing.T, id string) bool {
	t.Helper()
	running := false
	err := c.with(func(ctx context.Context, r runtimeapi.RuntimeServiceClient, _ runtimeapi.ImageServiceClient) error {
		list, err := r.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: id}})
		for _, x := range list.GetContainers() {
			running = running || x.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return running
}

// exec fails unless a command in the container of a sandbox ends well. What it says is
// not told, as CRI-O may lose that with handlers of the type vm.
func (c client) exec(t *testing.T, id string, command ...string) {
	t.Helper()
	err := c.with(func(ctx context.Context, r runtimeapi.RuntimeServiceClient, _ runtimeapi.ImageServiceClient) error {
		list, err := r.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: id}})
		if err != nil {
			return err
		}
		if len(list.GetContainers()) != 1 {
			return fmt.Errorf("it has %d containers", len(list.GetContainers()))
		}
		done, err := r.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: list.GetContainers()[0].GetId(), Cmd: command})
		if err == nil && done.GetExitCode() != 0 {
			err = fmt.Errorf("exit code %d: %s", done.GetExitCode(), done.GetStderr())
		}
		return err
	})
	if err != nil {
		t.Fatalf("run %q in sandbox %s: %v", command, id, err)
	}
}

func (c client) remove(t *testing.T, id string) {
	t.Helper()
	err := c.with(func(ctx context.Context, r runtimeapi.RuntimeServiceClient, _ runtimeapi.ImageServiceClient) error {
		if _, err := r.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
			return err
		}
		_, err := r.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
		return err
	})
	if err != nil {
		t.Errorf("remove sandbox %s: %v", id, err)
	}
}

func (c client) removeAll(t *testing.T) {
	var ids []string
	_ = c.with(func(ctx context.Context, r runtimeapi.RuntimeServiceClient, _ runtimeapi.ImageServiceClient) error {
		list, err := r.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		for _, s := range list.GetItems() {
			ids = append(ids, s.GetId())
		}
		return err
	})
	for _, id := range ids {
		c.remove(t, id)
	}
}
