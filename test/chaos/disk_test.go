package chaos

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/images"
	"fairlead.run/test/node"
)

// disk is a small file system of its own, on which everything can go wrong.
type disk struct {
	t      *testing.T
	dir    string // where it is mounted
	file   string // what it is in
	device string // of the device mapper, if it is on one
	tables map[bool]string
	names  int // that useInodes has taken
}

// diskSize is in bytes, and diskInodes is how many files there can be.
const (
	diskSize   = 48 << 20
	diskInodes = 4096
)

func newDisk(t *testing.T, mapped bool) *disk {
	t.Helper()
	return newDiskOf(t, 1, mapped)
}

// newDiskOf makes one that is so many times as large.
func newDiskOf(t *testing.T, times int, mapped bool) *disk {
	t.Helper()
	mkfs, err := exec.LookPath("mkfs.ext4")
	if err != nil {
		t.Skipf("needs mkfs.ext4 of the package e2fsprogs: %v", err)
	}
	file, dir := filepath.Join(t.TempDir(), "disk"), t.TempDir()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, int64(times)*diskSize); err != nil {
		t.Fatal(err)
	}
	run(t, mkfs, "-q", "-m", "0", "-N", fmt.Sprint(times*diskInodes), "-O", "^has_journal", file)
	d := &disk{t: t, dir: dir, file: file}
	source := []string{"-o", "loop,errors=remount-ro", file}
	if mapped {
		d.mapOnto(file, times*diskSize/512)
		source = []string{"/dev/mapper/" + d.device}
	}
	run(t, append(append([]string{"mount"}, source...), dir)...)
	t.Cleanup(func() { run(t, "umount", dir) })
	return d
}

// mapOnto puts a device between the file and its file system that can fail.
func (d *disk) mapOnto(file string, sectors int) {
	d.t.Helper()
	if _, err := os.Stat("/dev/mapper/control"); err != nil {
		d.t.Skipf("needs a kernel with the device mapper: %v", err)
	}
	if _, err := exec.LookPath("dmsetup"); err != nil {
		d.t.Skipf("needs dmsetup: %v", err)
	}
	loop := strings.TrimSpace(run(d.t, "losetup", "--find", "--show", file))
	d.t.Cleanup(func() { run(d.t, "losetup", "--detach", loop) })
	d.device = fmt.Sprintf("fltest-%d-%s", os.Getpid(), filepath.Base(loop))
	d.tables = map[bool]string{true: fmt.Sprintf("0 %d linear %s 0", sectors, loop), false: fmt.Sprintf("0 %d error", sectors)}
	run(d.t, "dmsetup", "create", "--noudevsync", d.device, "--table", d.tables[true])
	d.t.Cleanup(func() { run(d.t, "dmsetup", "remove", "--noudevsync", d.device) })
	run(d.t, "dmsetup", "mknodes", d.device) // for hosts without udev
}

func run(t *testing.T, command ...string) string {
	t.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(command, " "), err, out)
	}
	return string(out)
}

// fault breaks a disk, and mends it.
type fault struct {
	name    string
	on, off func(*disk)
	mapped  bool // needs the device mapper
	// lasting is said of what a file system gets over only when it is mounted anew:
	// with that, everything that was on it is closed.
	lasting bool
}

var faults = []fault{
	{name: "full", on: (*disk).fill, off: (*disk).empty},
	{name: "no inodes", on: (*disk).useInodes, off: (*disk).empty},
	{name: "mounted read-only", on: (*disk).readOnly, off: (*disk).writable},
	{name: "read-only", on: (*disk).abort, off: (*disk).mountAgain, lasting: true},
	{name: "EIO", on: (*disk).shutDown, off: (*disk).mountAgain, lasting: true},
	{name: "unreadable", on: (*disk).fail, off: (*disk).work, mapped: true},
}

func (d *disk) ballast() string { return filepath.Join(d.dir, "ballast") }

// fill leaves not a byte. Asked again it takes what has become free.
func (d *disk) fill() {
	d.t.Helper()
	f, err := os.OpenFile(d.ballast(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		switch _, err := f.Write(make([]byte, size)); {
		case errors.Is(err, unix.ENOSPC):
			size /= 2
		case err != nil:
			d.t.Fatal(err)
		}
	}
}

// useInodes leaves no new name. Asked again it takes those that have become free.
func (d *disk) useInodes() {
	d.t.Helper()
	if err := os.MkdirAll(d.ballast(), 0o700); err != nil {
		d.t.Fatal(err)
	}
	for ; ; d.names++ {
		f, err := os.Create(fmt.Sprintf("%s/%d", d.ballast(), d.names))
		if errors.Is(err, unix.ENOSPC) {
			return
		}
		if err != nil {
			d.t.Fatal(err)
		}
		_ = f.Close()
	}
}

func (d *disk) empty() {
	d.t.Helper()
	if err := os.RemoveAll(d.ballast()); err != nil {
		d.t.Fatal(err)
	}
}

// readOnly keeps everybody from opening anything for writing, by a mount that
// hides the disk. What is open stays writable.
func (d *disk) readOnly() {
	d.t.Helper()
	for _, flags := range []uintptr{unix.MS_BIND | unix.MS_REC, unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY} {
		if err := unix.Mount(d.dir, d.dir, "", flags, ""); err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d *disk) writable() {
	d.t.Helper()
	if err := unix.Unmount(d.dir, unix.MNT_DETACH); err != nil {
		d.t.Fatal(err)
	}
}

// fail makes every sector unreadable that is not in memory.
func (d *disk) fail() {
	d.t.Helper()
	unix.Sync()
	d.load(false)
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0); err != nil {
		d.t.Fatal(err)
	}
}

func (d *disk) work() { d.load(true) }

func (d *disk) load(works bool) {
	d.t.Helper()
	run(d.t, "dmsetup", "suspend", "--nolockfs", "--noflush", "--noudevsync", d.device)
	run(d.t, "dmsetup", "load", d.device, "--table", d.tables[works])
	run(d.t, "dmsetup", "resume", "--noudevsync", d.device)
}

// place is what of a node is on the disk.
type place struct {
	name string
	put  func(n *node.Node, dir string)
}

var places = []place{
	{"state", func(n *node.Node, dir string) { n.State = dir + "/run" }},
	{"images", func(n *node.Node, dir string) { n.Root = dir + "/lib" }},
	{"logs", func(n *node.Node, dir string) { n.Logs = dir + "/logs" }},
}

// TestDisk breaks the disk of a node's state, images and logs in every way.
// While it is broken, requests end with an error that says what is wrong and
// where, or they work; what runs goes on. When it is mended, the same requests
// work, without a restart.
func TestDisk(t *testing.T) {
	for _, p := range places {
		for _, f := range faults {
			t.Run(p.name+" "+f.name, func(t *testing.T) {
				if f.mapped && p.name == "state" {
					t.Skip("the records are mapped into the daemon's memory, which ends where they cannot be read; EIO for who writes has a test of its own")
				}
				t.Parallel()
				breakDisk(t, p, f)
			})
		}
	}
}

func breakDisk(t *testing.T, p place, f fault) {
	d := newDisk(t, f.mapped)
	n := node.Start(t, "", func(n *node.Node) error { p.put(n, d.dir); return nil })
	n.Pull(node.Busybox)
	s := n.RunPod("crun")
	old := s.Start(node.Script("sleep 1000"))
	ready := s.Create(node.Script("echo started"))
	other, err := node.PushImage("test/other:1", ocispec.ImageConfig{}, images.Layer{Files: map[string]images.File{"other": {Body: make([]byte, 1<<20)}}})
	if err != nil {
		t.Fatal(err)
	}
	attempts := append(newAttempts(n, s, ready, other), newEnds(old, n.RunPod("crun").Start(node.Script("sleep 1000")))...)

	f.on(d)
	failed := 0
	for _, r := range attempts {
		if err := r.call(); err != nil {
			failed++
			wantDiskError(t, d, r.name, err)
		}
	}
	if failed == 0 && p.name != "logs" {
		t.Error("nothing failed: the disk was not broken at all")
	}
	if st := old.Status(); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the container that ran is %s", st.State)
	}
	if list, err := n.Runtime.ListPodSandbox(n.Ctx(), &runtimeapi.ListPodSandboxRequest{}); err != nil || len(list.Items) == 0 {
		t.Errorf("list pods: %v, %v", list, err)
	}

	if f.lasting {
		afterMending(t, n, func() { f.off(d) })
		return
	}
	f.off(d)
	for _, r := range attempts {
		err := r.call()
		if err != nil && f.mapped {
			err = r.call() // the kernel tells once of what it could not write before
		}
		if err != nil {
			t.Errorf("%s after the disk was mended: %v", r.name, err)
		}
	}
	node.Eventually(t, "the output of the container", func() bool { return strings.TrimSpace(ready.Log()) == "started" })
	old.Exec("true")
}

// wantDiskError wants an error that says what is wrong, where, and of a kind
// that tells the caller that it is not the request's fault.
func wantDiskError(t *testing.T, d *disk, request string, err error) {
	t.Helper()
	t.Logf("%s: %v", request, err)
	switch status.Code(err) {
	case codes.ResourceExhausted, codes.FailedPrecondition, codes.Unavailable:
	default:
		t.Errorf("%s: code %s of %v", request, status.Code(err), err)
	}
	text := err.Error()
	if !strings.Contains(text, d.dir) && !strings.Contains(text, "the disk under the container's files") {
		t.Errorf("%s: no path in %q", request, text)
	}
	if !strings.Contains(text, "full") && !strings.Contains(text, "no space left") && !strings.Contains(text, "inodes") && !strings.Contains(text, "read-only") && !strings.Contains(strings.ToLower(text), "input/output error") {
		t.Errorf("%s: %q does not say what is wrong with the disk", request, text)
	}
}

// attempt is a request that is made twice: with the disk broken, and mended.
type attempt struct {
	name string
	call func() error
}

func newAttempts(n *node.Node, s *node.Sandbox, ready *node.Container, image string) []attempt {
	pod, ctr := n.PodConfig(), node.Script("sleep 1000")
	return []attempt{
		{"PullImage", func() error {
			_, err := n.TryPull(image)
			return err
		}},
		{"RunPodSandbox", func() error {
			r, err := n.Runtime.RunPodSandbox(n.Ctx(), &runtimeapi.RunPodSandboxRequest{Config: pod, RuntimeHandler: "crun"})
			if err == nil {
				n.Know(r.PodSandboxId)
			}
			return err
		}},
		{"CreateContainer", func() error {
			_, err := s.TryCreate(ctr)
			return err
		}},
		{"StartContainer", func() error {
			switch st := ready.Status(); {
			case st.State == runtimeapi.ContainerState_CONTAINER_CREATED:
			case st.Reason == "StartError": // for good; callers make a new one
				ready.Config = node.Script("echo started")
				id, err := s.TryCreate(ready.Config)
				if err != nil {
					return err
				}
				ready.ID = id
			default:
				return nil // it was started before
			}
			return ready.TryStart()
		}},
	}
}

// newEnds are about a container that runs, and about the end of another one and
// its pod.
func newEnds(old, ends *node.Container) []attempt {
	n, pod := old.Sandbox.Node, ends.Sandbox.ID
	return []attempt{
		{"ExecSync", func() error {
			r, err := n.Runtime.ExecSync(n.Ctx(), &runtimeapi.ExecSyncRequest{ContainerId: old.ID, Cmd: []string{"echo", "here"}, Timeout: 60})
			if err == nil && (string(r.Stdout) != "here\n" || r.ExitCode != 0) {
				n.T.Errorf("exec answered %s", r)
			}
			return err
		}},
		{"StopContainer", func() error {
			_, err := n.Runtime.StopContainer(n.Ctx(), &runtimeapi.StopContainerRequest{ContainerId: ends.ID})
			return err
		}},
		{"RemoveContainer", func() error {
			_, err := n.Runtime.RemoveContainer(n.Ctx(), &runtimeapi.RemoveContainerRequest{ContainerId: ends.ID})
			return err
		}},
		{"StopPodSandbox", func() error {
			_, err := n.Runtime.StopPodSandbox(n.Ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: pod})
			return err
		}},
		{"RemovePodSandbox", func() error {
			_, err := n.Runtime.RemovePodSandbox(n.Ctx(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: pod})
			return err
		}},
	}
}
