package operator

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/names"
)

// The operator's DaemonSets are run for real: their container, confined and with the
// mounts that the spec has and nothing else, on a node that is a folder with a real
// containerd or CRI-O. What it says by its readiness and its termination message is what the
// operator gets, and labels and classes follow from that.
func TestContainersOfDaemonSets(t *testing.T) {
	for name, o := range map[string]system{
		"ubuntu": {cri: v1alpha1.CRIContainerd, image: "ubuntu", release: "ID=ubuntu\n", binaries: "usr/bin", config: "etc/containerd/config.toml", line: "/usr/bin/containerd"},
		// It starts containerd with a file that nobody can write.
		"flatcar": {cri: v1alpha1.CRIContainerd, image: "flatcar", release: "ID=flatcar\nID_LIKE=coreos\n", binaries: "var/bin", config: "usr/share/containerd/config.toml", line: "/usr/bin/containerd --config /usr/share/containerd/config.toml", sealed: true},
		"CRI-O":   {cri: v1alpha1.CRICRIO, image: "ubuntu", release: "ID=ubuntu\n", binaries: "usr/bin", config: "etc/crio/crio.conf", line: "/usr/bin/crio"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lifeOnNode(t, o)
		})
	}
}

func lifeOnNode(t *testing.T, o system) {
	n := newMachine(t, o)
	w := newWorld(t)
	image, damaged := n.image("1"), n.image("0")
	w.create(damaged.object)
	w.fleet("sandboxed", 1)
	pool := aPool("sandboxed", "gvisor")
	pool.Spec.MachineImage.Name, pool.Spec.CRI.Name = o.image, o.cri
	w.create(pool)
	const node = "sandboxed-000"
	var runs *container
	w.runs = func(p *corev1.Pod) {
		if runs != nil && runs.name == p.Labels[names.Work] {
			p.Status.Conditions, p.Status.ContainerStatuses = runs.status()
		}
	}
	// start runs the container of the pod that there is.
	start := func(i *rootfs) *container {
		t.Helper()
		var pods corev1.PodList
		w.must(w.client.List(t.Context(), &pods))
		if len(pods.Items) != 1 {
			t.Fatalf("%d pods", len(pods.Items))
		}
		return n.run(w, &pods.Items[0], i)
	}
	before := tree(t, n.at("etc"))

	// A payload that was damaged on its way is refused, and the node stays as it was.
	w.settle()
	n.write(filepath.Join(damaged.root, "shim"), "damaged", 0o755)
	runs = start(damaged)
	runs.wait()
	w.settle()
	w.wants("a damaged payload", w.operation("gvisor-sandboxed"), "PayloadInvalid", "truncated or was changed")
	if w.node(node).Labels[names.Ready+"gvisor"] != "" {
		t.Error("the node is ready with a damaged payload")
	}
	if got := tree(t, n.at("etc")); got != before {
		t.Errorf("a damaged payload left\n%s", got)
	}

	// The image of another release than the object tells of is refused likewise.
	runs = start(image)
	runs.wait()
	w.settle()
	w.wants("another payload", w.operation("gvisor-sandboxed"), "PayloadInvalid", "another payload.json than RuntimePayload gvisor")
	w.change(damaged.object, func() { damaged.object.Spec = image.object.Spec })
	w.settle()

	runs = start(image)
	runs.awaitReady()
	r := runs.result()
	if r.State != payload.Installed || !r.Restarted || !slices.Equal(r.Handlers, []string{"runsc"}) || len(r.Warnings) > 0 {
		t.Errorf("%+v", r)
	}
	w.settle()
	if text, err := os.ReadFile(n.at("var/lib/fairlead-installer/node.json")); err != nil || !strings.Contains(string(text), `"binaryPath": "/`+o.binaries+`"`) || !strings.Contains(string(text), `"config": "/`+o.writable()+`"`) {
		t.Errorf("%v: %s", err, text)
	}
	if w.node(node).Labels[names.Ready+"gvisor"] != "true" {
		t.Errorf("labels: %v", w.node(node).Labels)
	}
	if c := w.class("gvisor"); c == nil || c.Handler != "runsc" {
		t.Errorf("class: %+v", c)
	}
	w.wants("the runtime", w.operation("gvisor-sandboxed"), "Succeeded", "1 of 1 nodes")
	want := []string{"restart " + string(o.cri) + ".service"}
	if o.sealed {
		want = slices.Insert(want, 0, "reload")
		if made, err := os.ReadFile(n.at(o.writable())); err != nil || !strings.Contains(string(made), "# of ops") {
			t.Errorf("%v: %s", err, made)
		}
	}
	if got := n.jobs(); !slices.Equal(got, want) {
		t.Errorf("systemd was asked for %q", got)
	}
	runs.tells("RuntimeRestarted")
	runs.stop()

	w.must(w.client.Delete(t.Context(), aPool("sandboxed")))
	for range 5 {
		w.step()
	}
	runs = start(image)
	runs.awaitReady()
	if r := runs.result(); r.State != payload.Removed {
		t.Errorf("%+v", r)
	}
	w.settle()
	if labels := w.node(node).Labels; len(labels) != 1 || w.class("gvisor") != nil {
		t.Errorf("left are %v", labels)
	}
	runs.stop()
	if got := tree(t, n.at("etc")); got != before {
		t.Errorf("left is\n%s\nand not\n%s", got, before)
	}
	for _, made := range []string{o.binaries + "/gvisor", "var/lib/fairlead-installer/gvisor.type.json", "var/lib/fairlead-installer/node.json"} {
		if _, err := os.Stat(n.at(made)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", made, err)
		}
	}
}

// tree is what is in a folder, with contents.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s\n", strings.TrimPrefix(path, dir))
		if d.Type().IsRegular() {
			text, err := os.ReadFile(path)
			fmt.Fprintf(&b, "%s\n", text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// machine is a node: a folder with the namespaces in which its runtime runs, and with
// a bus on which the test is systemd.
type machine struct {
	*testing.T
	system
	dir     string
	init    *exec.Cmd
	systemd *fakeSystemd
	program string // fairlead
}

func (m *machine) at(path string) string { return filepath.Join(m.dir, path) }

func (m *machine) write(path, text string, mode os.FileMode) {
	m.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		m.Fatal(err)
	}
}

// initScript is process 1 of the node: it mounts what a runtime needs, and starts that
// again whenever it ends, but not with a word in its configuration that is in the file
// fatal. The programs of this machine come with their libraries.
const initScript = `set -e
mount --make-rprivate /
mount --bind "$NODE" "$NODE"
mount -t proc proc "$NODE/proc"
mount --rbind /sys "$NODE/sys"
mount --rbind /dev "$NODE/dev"
mount --bind "$NODE/usr" "$NODE/usr"
for lib in usr/lib usr/lib64 lib lib64; do
	if [ -L /$lib ]; then ln -sfn "$(readlink /$lib)" "$NODE/$lib"
	elif [ -d /$lib ]; then mkdir -p "$NODE/$lib"; mount --rbind /$lib "$NODE/$lib"; fi
done
[ -z "$SEALED" ] || mount -o remount,bind,ro "$NODE/usr"
while :; do
	if [ -e "$NODE/fatal" ] && grep -qsr "$(cat "$NODE/fatal")" "$NODE/etc"; then sleep 0.1; continue; fi
	chroot "$NODE" $(cat "$NODE/exec") 2>>"$NODE/log" &
	echo $! > "$NODE/pid.new"; mv "$NODE/pid.new" "$NODE/pid"
	wait $! || true
	sleep 0.1
done`

func newMachine(t *testing.T, o system) *machine {
	t.Helper()
	programs := o.programs(t)
	for _, program := range []string{"dbus-daemon", "setpriv", "nsenter", "unshare"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not here", program)
		}
	}
	m := &machine{T: t, system: o, dir: t.TempDir()}
	m.program = m.build()
	for _, dir := range []string{"proc", "sys", "dev", "etc/systemd/system", "etc/" + string(o.cri), "run/" + string(o.cri), "run/dbus", "usr/bin", "usr/lib", "usr/lib64", "var/lib", "tmp"} {
		if err := os.MkdirAll(m.at(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../run", m.at("var/run")); err != nil {
		t.Fatal(err)
	}
	for _, program := range programs {
		text, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		m.write(m.at("usr/bin/"+filepath.Base(program)), string(text), 0o755)
	}
	m.write(m.at("etc/os-release"), o.release, 0o644)
	m.write(m.at("exec"), o.line, 0o644)
	if o.cri == v1alpha1.CRICRIO {
		m.write(m.at(o.config), crioConfig, 0o644)
	} else {
		m.write(m.at(o.config), containerdConfig, 0o644)
		// An import from where nothing is mounted.
		m.write(m.at("opt/site/foreign.toml"), "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.foreign]\n  runtime_type = \"io.containerd.runc.v2\"\n", 0o644)
	}
	m.init = exec.Command("sh", "-c", initScript)
	m.init.Env = append(os.Environ(), "NODE="+m.dir)
	if o.sealed {
		m.init.Env = append(m.init.Env, "SEALED=yes")
	}
	said := &bytes.Buffer{}
	m.init.Stderr = said
	m.init.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
	if err := m.init.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = m.init.Process.Kill() // and with it everything in its PID namespace
		_ = m.init.Wait()
		if t.Failed() {
			log, _ := os.ReadFile(m.at("log"))
			t.Logf("%s\n%s:\n%s", said, o.cri, log[max(0, len(log)-4000):])
		}
	})
	m.systemd = newManager(m)
	m.eventually("the runtime's socket", m.listens)
	return m
}

// socket is the runtime's, and listens says whether it is there.
func (m *machine) socket() string { return m.at(fmt.Sprintf("run/%s/%[1]s.sock", m.cri)) }

func (m *machine) listens() bool {
	_, err := os.Stat(m.socket())
	return err == nil
}

// build makes the program as images have it.
func (m *machine) build() string {
	m.Helper()
	out := filepath.Join(m.TempDir(), "fairlead")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-tags", "grpcnotrace nri_no_wasm", "-o", out, "../../cmd/fairlead")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		m.Fatalf("%v: %s", err, said)
	}
	return out
}

func (m *machine) eventually(what string, is func() bool) {
	m.Helper()
	for end := time.Now().Add(4 * time.Minute); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			m.Fatalf("%s: not within four minutes", what)
		}
	}
}

// enter runs a program in the node's namespaces.
func (m *machine) enter(args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--target", fmt.Sprint(m.init.Process.Pid), "--mount", "--pid", "--"}, args...)...)
}

// fakeSystemd is the test itself as systemd, on a bus of the node.
type fakeSystemd struct {
	m    *machine
	conn *dbus.Conn
	done chan string

	mu     sync.Mutex
	loaded string // the drop-in, as it was read last
}

const systemdPath = dbus.ObjectPath("/org/freedesktop/systemd1")

func newManager(m *machine) *fakeSystemd {
	m.Helper()
	socket := m.at("run/dbus/system_bus_socket")
	config := filepath.Join(m.TempDir(), "bus.conf")
	m.write(config, `<busconfig><type>system</type><listen>unix:path=`+socket+`</listen><auth>EXTERNAL</auth>
<policy context="default"><allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/></policy></busconfig>`, 0o644)
	bus := exec.Command("dbus-daemon", "--nofork", "--nopidfile", "--nosyslog", "--config-file="+config)
	bus.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	if err := bus.Start(); err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() {
		_ = bus.Process.Kill()
		_ = bus.Wait()
		runtime.UnlockOSThread()
	})
	s := &fakeSystemd{m: m, done: make(chan string, 100)}
	m.eventually("the bus", func() bool {
		var err error
		s.conn, err = dbus.Connect("unix:path=" + socket)
		return err == nil
	})
	m.Cleanup(func() { _ = s.conn.Close() })
	if err := s.conn.Export(s, systemdPath, "org.freedesktop.systemd1.Manager"); err != nil {
		m.Fatal(err)
	}
	if err := s.conn.Export(properties{s}, systemdPath+"/unit/"+dbus.ObjectPath(m.cri)+"_2eservice", "org.freedesktop.DBus.Properties"); err != nil {
		m.Fatal(err)
	}
	if _, err := s.conn.RequestName("org.freedesktop.systemd1", 0); err != nil {
		m.Fatal(err)
	}
	return s
}

// Subscribe is called by clients that want signals.
func (s *fakeSystemd) Subscribe() *dbus.Error { return nil }

// properties are those of the runtime's unit.
type properties struct{ *fakeSystemd }

// Get is one of them.
func (p properties) Get(_, name string) (dbus.Variant, *dbus.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return dbus.MakeVariant(name == "NeedDaemonReload" && p.dropIn() != p.loaded), nil
}

// dropIn is the unit's, or "".
func (s *fakeSystemd) dropIn() string {
	text, _ := os.ReadFile(s.m.at("etc/systemd/system/" + string(s.m.cri) + ".service.d/50-fairlead.conf"))
	return string(text)
}

// Reload reads the drop-in, whose last line says how the runtime is started.
func (s *fakeSystemd) Reload() *dbus.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done <- "reload"
	s.loaded = s.dropIn()
	line := s.m.line
	if _, own, ok := strings.Cut(s.loaded, "\nExecStart=\nExecStart="); ok {
		line = strings.TrimSpace(own)
	}
	s.m.write(s.m.at("exec"), line, 0o644)
	return nil
}

// ResetFailedUnit has nothing to reset.
func (s *fakeSystemd) ResetFailedUnit(string) *dbus.Error { return nil }

// RestartUnit ends the runtime, if it runs, and process 1 starts it again.
func (s *fakeSystemd) RestartUnit(unit, _ string) (dbus.ObjectPath, *dbus.Error) {
	job := systemdPath + "/job/1"
	s.done <- "restart " + unit
	result := "done"
	if out, err := s.m.end(); err != nil {
		s.m.Logf("restart: %v: %s", err, out)
		result = "failed"
	}
	go func() {
		_ = s.conn.Emit(systemdPath, "org.freedesktop.systemd1.Manager.JobRemoved", uint32(1), job, unit, result)
	}()
	return job, nil
}

// end ends the runtime.
func (m *machine) end() ([]byte, error) {
	return m.enter("sh", "-c", `pid=$(cat "$1/pid"); ! kill -0 $pid 2>/dev/null || kill -TERM $pid`, "sh", m.dir).CombinedOutput()
}

// jobs are what systemd was asked for since the last call.
func (m *machine) jobs() (out []string) {
	for {
		select {
		case job := <-m.systemd.done:
			out = append(out, job)
		default:
			return out
		}
	}
}

// rootfs is the root file system of an image, and the object that tells of it.
type rootfs struct {
	root   string
	object *v1alpha1.RuntimePayload
}

// image is one with a runtime that only says its version.
func (m *machine) image(version string) *rootfs {
	m.Helper()
	i := &rootfs{root: m.TempDir(), object: aPayload("gvisor", version, "runsc")}
	program, err := os.ReadFile(m.program)
	if err != nil {
		m.Fatal(err)
	}
	m.write(filepath.Join(i.root, "fairlead"), string(program), 0o755)
	p := &i.object.Spec.Manifest
	p.Architectures, p.Files = []string{runtime.GOARCH}, nil
	p.Configs = []payload.Config{{Path: "runsc.toml", Content: "binary_name = \"${PAYLOAD}/shim\"\n[runsc_config]\n"}}
	p.Checks = []payload.Check{{Name: "version", Command: []string{"shim", "version"}}}
	m.write(filepath.Join(i.root, "shim"), string(program), 0o755)
	sum := sha256.Sum256(program)
	p.Files = []payload.File{{Path: "shim", Mode: "0755", Size: int64(len(program)), SHA256: hex.EncodeToString(sum[:])}}
	p.Handlers[0].CRIO = &payload.CRIOHandler{RuntimeType: "oci", RuntimePath: "shim"}
	p.Handlers[0].Containerd.Options = &payload.ContainerdOptions{TypeURL: "io.containerd.runsc.v1.options", ConfigPath: "${CONFIG}/runsc.toml"}
	text, err := json.Marshal(p)
	if err != nil {
		m.Fatal(err)
	}
	m.write(filepath.Join(i.root, payload.ManifestName), string(text), 0o644)
	return i
}

// container is one that runs.
type container struct {
	m     *machine
	name  string // of the work
	root  string
	spec  corev1.Container
	log   string // the file with its termination message
	cmd   *exec.Cmd
	said  *bytes.Buffer
	ended chan struct{}
}

// run starts the container of a pod as a container runtime would: with the mounts, the
// rights and the root file system that its spec says.
func (m *machine) run(w *world, p *corev1.Pod, i *rootfs, env ...string) *container {
	m.Helper()
	spec := p.Spec.Containers[0]
	c := &container{m: m, name: p.Labels[names.Work], root: i.root, spec: spec, log: filepath.Join(m.TempDir(), "log"), said: &bytes.Buffer{}, ended: make(chan struct{})}
	m.write(c.log, "", 0o666)
	if !p.Spec.HostPID || *spec.SecurityContext.Privileged || !*spec.SecurityContext.ReadOnlyRootFilesystem {
		m.Fatalf("the pod is another one: %+v", p.Spec)
	}
	var script strings.Builder
	script.WriteString("set -e\nmount --make-rslave /\n")
	say := func(format string, args ...any) { fmt.Fprintf(&script, format+"\n", args...) }
	at := func(path string) string { return filepath.Join(c.root, path) }
	for _, dir := range []string{"dev", "proc"} {
		if err := os.MkdirAll(at(dir), 0o755); err != nil {
			m.Fatal(err)
		}
	}
	say("mount --bind %s %[1]s\nmount -t proc proc %s\nmount -t tmpfs tmpfs %s", c.root, at("proc"), at("dev"))
	say("touch %[1]s/null %[1]s/termination-log\nmount --bind /dev/null %[1]s/null\nmount --bind %[2]s %[1]s/termination-log", at("dev"), c.log)
	for _, v := range spec.VolumeMounts {
		m.mount(say, at(v.MountPath), v, m.source(w, p, v.Name))
	}
	say("mount -o remount,bind,ro %s", c.root)
	var caps []string
	for _, add := range spec.SecurityContext.Capabilities.Add {
		caps = append(caps, "+"+strings.ToLower(string(add)))
	}
	say("exec setpriv --no-new-privs --inh-caps=-all --bounding-set=-all,%s chroot %s %s", strings.Join(caps, ","), c.root, strings.Join(slices.Concat(spec.Command, spec.Args), " "))
	c.cmd = m.enter("unshare", "--mount", "--", "sh", "-c", script.String())
	c.cmd.Stdout, c.cmd.Stderr, c.cmd.Env = c.said, c.said, append(os.Environ(), env...)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.cmd.Start(); err != nil {
		m.Fatal(err)
	}
	go func() {
		_ = c.cmd.Wait() // its result is in its termination message
		close(c.ended)
	}()
	m.Cleanup(c.stop)
	return c
}

// source is what is mounted of a volume: on the node, or made for the pod.
func (m *machine) source(w *world, p *corev1.Pod, name string) string {
	m.Helper()
	at := slices.IndexFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
	if at < 0 {
		m.Fatalf("there is no volume %s", name)
	}
	switch v := p.Spec.Volumes[at]; {
	case v.HostPath != nil:
		path := m.at(v.HostPath.Path)
		info, err := os.Stat(path)
		switch *v.HostPath.Type {
		case corev1.HostPathDirectoryOrCreate:
			err = os.MkdirAll(path, 0o755)
		case corev1.HostPathDirectory:
			if err == nil && !info.IsDir() {
				err = os.ErrInvalid
			}
		case corev1.HostPathFile:
			if err == nil && !info.Mode().IsRegular() {
				err = os.ErrInvalid
			}
		default:
			m.Fatalf("volume %s has type %s", name, *v.HostPath.Type)
		}
		if err != nil {
			m.Fatalf("volume %s: %s: %v", name, v.HostPath.Path, err)
		}
		return path
	case v.ConfigMap != nil:
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: v.ConfigMap.Name}}
		if !w.get(settings) {
			m.Fatalf("there is no ConfigMap %s", v.ConfigMap.Name)
		}
		dir := m.TempDir()
		for key, text := range settings.Data {
			m.write(filepath.Join(dir, key), text, 0o644)
		}
		return dir
	case v.EmptyDir != nil:
		return m.TempDir()
	}
	m.Fatalf("volume %s is of a kind that the installer has no use for", name)
	return ""
}

// mount makes the place of a volume, and says how it is mounted there.
func (m *machine) mount(say func(string, ...any), to string, v corev1.VolumeMount, from string) {
	m.Helper()
	info, err := os.Stat(from)
	if err != nil {
		m.Fatal(err)
	}
	if info.IsDir() {
		err = os.MkdirAll(to, 0o755)
	} else {
		m.write(to, "", 0o644)
	}
	if err != nil {
		m.Fatal(err)
	}
	say("mount --rbind %s %s", from, to)
	if v.MountPropagation == nil {
		say("mount --make-rprivate %s", to)
	}
	if v.ReadOnly {
		say("mount -o remount,bind,ro %s", to)
	}
}

// ready is what the probe says.
func (c *container) ready() bool {
	_, err := c.probe()
	return err == nil
}

// probe is what it prints, with an error if it fails.
func (c *container) probe() (string, error) {
	child, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", c.cmd.Process.Pid))
	fields := strings.Fields(string(child))
	if err != nil || len(fields) != 1 {
		return "", errors.Join(err, errors.New("it is not running yet"))
	}
	args := append([]string{"--target", fields[0], "--mount", "--pid", "--", "chroot", c.root}, c.spec.ReadinessProbe.Exec.Command...)
	said, err := exec.Command("nsenter", args...).CombinedOutput()
	return string(said), err
}

// tells has the node's monitor say that it has restarted the runtime: one probe fails
// with that, and the next one succeeds.
func (c *container) tells(reason string) {
	c.m.Helper()
	at := time.Now().Add(time.Second) // after the watch has begun
	c.m.write(c.m.at("run/fairlead-installer/monitor.json"), `{"time":"`+at.Format(time.RFC3339Nano)+`","reason":"`+reason+`","silent":"1m0s","times":1,"how":"a test"}`+"\n", 0o644)
	c.m.eventually("a probe fails", func() bool {
		said, err := c.probe()
		if err != nil && !strings.Contains(said, reason) {
			c.m.Fatalf("%v: %s", err, said)
		}
		return err != nil
	})
	if said, err := c.probe(); err != nil {
		c.m.Errorf("the next probe fails as well: %v: %s", err, said)
	}
}

func (c *container) awaitReady() {
	c.m.Helper()
	c.m.eventually("the container is ready", func() bool {
		select {
		case <-c.ended:
			c.m.Fatalf("it has ended: %s", c.said)
		default:
		}
		return c.ready()
	})
}

// result is the termination message.
func (c *container) result() *payload.InstallResult {
	c.m.Helper()
	text, err := os.ReadFile(c.log)
	if err != nil {
		c.m.Fatal(err)
	}
	r, err := payload.DecodeResult(text)
	if err != nil {
		c.m.Fatalf("%v in %q: %s", err, text, c.said)
	}
	return r
}

// wait waits for the end by itself.
func (c *container) wait() { <-c.ended }

func (c *container) stop() {
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGTERM)
	<-c.ended
}

// status is what a kubelet makes of it.
func (c *container) status() ([]corev1.PodCondition, []corev1.ContainerStatus) {
	select {
	case <-c.ended:
		text, _ := os.ReadFile(c.log)
		ended := &corev1.ContainerStateTerminated{ExitCode: int32(c.cmd.ProcessState.ExitCode()), Message: string(text)}
		return nil, []corev1.ContainerStatus{{Name: c.spec.Name, State: corev1.ContainerState{Terminated: ended}}}
	default:
	}
	if !c.ready() {
		return nil, nil
	}
	return []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}, nil
}
