package monitor_test

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/monitor/client"
)

// bundle makes an OCI bundle of a busybox for a real runtime. The monitor does
// not care what is in it; the rest of this file is about how real runtimes
// detach, deliver terminals and report.
func (n *node) bundle(id string, tty bool, script string) string {
	n.t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		n.t.Skip("needs a static busybox (Debian package busybox-static)")
	}
	dir := filepath.Join(n.dir, "bundle-"+id)
	bin := filepath.Join(dir, "rootfs/bin")
	for _, d := range []string{bin, filepath.Join(dir, "rootfs/proc"), filepath.Join(dir, "rootfs/dev")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			n.t.Fatal(err)
		}
	}
	data, err := os.ReadFile(busybox)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(bin+"/busybox", data, 0o755); err != nil {
		n.t.Fatal(err)
	}
	type m = map[string]any
	spec := m{
		"ociVersion": "1.1.0",
		"process": m{
			"terminal": tty, "cwd": "/", "args": []string{"/bin/busybox", "sh", "-c", script},
			"env": []string{"PATH=/bin"}, "user": m{"uid": 1000, "gid": 1000}, "oomScoreAdj": 500,
		},
		"root": m{"path": "rootfs"},
		"mounts": []m{
			{"destination": "/proc", "type": "proc", "source": "proc"},
			{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
			{"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": []string{"newinstance", "ptmxmode=0666"}},
		},
		"linux": m{
			"cgroupsPath": "/" + n.opt.Cgroup + "-" + id,
			"namespaces":  []m{{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}},
			"resources":   m{"memory": m{"limit": 32 << 20}},
		},
	}
	text, err := json.Marshal(spec)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600); err != nil {
		n.t.Fatal(err)
	}
	return dir
}

// withRuntimes runs a test for each real runtime that works here.
func withRuntimes(t *testing.T, test func(t *testing.T, runtime string)) {
	for _, name := range []string{"runc", "crun"} {
		t.Run(name, func(t *testing.T) {
			path, err := exec.LookPath(name)
			if err != nil {
				t.Skipf("needs %s (Debian package %s)", name, name)
			}
			test(t, path)
		})
	}
}

// hybrid says whether cgroups are mounted as crun refuses to use them.
func hybrid() bool {
	controllers, err := os.ReadFile("/sys/fs/cgroup/unified/cgroup.controllers")
	return err == nil && len(strings.TrimSpace(string(controllers))) > 0
}

// lead puts before a command of crun what makes it work on a hybrid: a mount
// namespace that does not show the second hierarchy.
func (n *node) lead(runtime string, argv []string) []string {
	n.t.Helper()
	if !strings.HasSuffix(runtime, "crun") || !hybrid() {
		return argv
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		n.t.Skip("needs unshare (Debian package util-linux): crun refuses hybrid cgroups")
	}
	return append([]string{unshare, "--mount", "/bin/sh", "-c", `umount /sys/fs/cgroup/unified && exec "$0" "$@"`}, argv...)
}

// oci is the request to run a bundle by a real runtime.
func (n *node) oci(runtime, id string, tty bool, script string) monitorv1.StartRequest {
	n.t.Helper()
	req := n.container(id, "unused")
	root := filepath.Join(n.dir, "root")
	req.Command = []string{
		runtime, "--root", root, "--log", n.dir + "/" + id + ".rlog", "run", "--detach",
		"--pid-file", req.PIDFile, "--bundle", n.bundle(id, tty, script),
	}
	req.Command = n.lead(runtime, req.Command)
	req.RuntimeLog = n.dir + "/" + id + ".rlog"
	if tty {
		req.Command = append(req.Command, "--console-socket", monitorv1.ConsoleSocket)
		req.TTY = true
		req.Size = monitorv1.WindowSize{Width: 90, Height: 20}
	}
	req.Command = append(req.Command, id)
	n.t.Cleanup(func() {
		argv := n.lead(runtime, []string{runtime, "--root", root, "delete", "--force", id})
		out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
		if err != nil && !strings.Contains(string(out), "does not exist") {
			n.t.Logf("delete %s: %v %s", id, err, out)
		}
	})
	return req
}

func TestRealContainer(t *testing.T) {
	t.Parallel()
	withRuntimes(t, func(t *testing.T, runtime string) {
		n := newNode(t)
		req := n.oci(runtime, "a", false, "echo out; echo err >/dev/stderr 2>/proc/self/fd/2; busybox ls /proc/self/fd; read x; echo $x; exit 7")
		req.Stdin = true
		n.start(req)
		e := n.exec("e", "unused")
		e.Command = n.lead(runtime, []string{
			runtime, "--root", n.dir + "/root", "exec", "--detach", "--pid-file", e.PIDFile, "a",
			"/bin/busybox", "sh", "-c", "cat; exit 5",
		})
		inR, in, _ := os.Pipe()
		out, outW, _ := os.Pipe()
		defer out.Close()
		if _, _, err := n.Exec(n.ctx, e, [3]*os.File{inR, outW, nil}); err != nil {
			t.Fatal(err)
		}
		_, _ = inR.Close(), outW.Close()
		_, _ = in.WriteString("passed")
		_ = in.Close()
		if got, _ := io.ReadAll(out); string(got) != "passed" {
			t.Errorf("exec: %q", got)
		}
		if e := n.wait("e"); e.Code != 5 {
			t.Errorf("exec: %+v", e)
		}
		n.kill(n.info().InnerPID)
		s, err := n.Attach(n.ctx, "a", attachIn)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		_, _ = s.Write([]byte("typed\n"))
		if e := n.wait("a"); e.Code != 7 || e.OOMKilled || e.Lost {
			t.Errorf("exit %+v", e)
		}
		// Nothing of the monitor's is open in the container.
		if got := n.text("a", "stdout"); got != "out\n0\n1\n2\n3\ntyped\n" {
			t.Errorf("log %q", got)
		}
	})
}

func TestRealTerminal(t *testing.T) {
	t.Parallel()
	withRuntimes(t, func(t *testing.T, runtime string) {
		n := newNode(t)
		n.start(n.oci(runtime, "a", true, "until busybox stty size | busybox grep [1-9]; do busybox sleep 0.01; done; read x; echo got $x; exit 3"))
		s, err := n.Attach(n.ctx, "a", client.AttachStreams{Stdin: true, Stdout: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		_, _ = s.Write([]byte("it\n"))
		if e := n.wait("a"); e.Code != 3 {
			t.Errorf("exit %+v", e)
		}
		if got := n.text("a", "stdout"); !strings.Contains(got, "20 90") || !strings.Contains(got, "got it") {
			t.Errorf("log %q", got)
		}
	})
}

func TestRealOOM(t *testing.T) {
	t.Parallel()
	withRuntimes(t, func(t *testing.T, runtime string) {
		n := newNode(t)
		n.start(n.oci(runtime, "a", false, "sleep 0.2; busybox dd if=/dev/zero of=/dev/big bs=1M count=200; x=$(busybox tr '\\0' x < /dev/zero | busybox head -c 100000000); exit 1"))
		if e := n.wait("a"); !e.OOMKilled {
			t.Errorf("exit %+v, log %q", e, n.text("a", "stderr"))
		}
		n.start(n.oci(runtime, "b", false, "sleep 1000"))
		if err := n.Signal(n.ctx, "b", unix.SIGKILL, false); err != nil {
			t.Fatal(err)
		}
		if e := n.wait("b"); e.OOMKilled || e.Signal != 9 {
			t.Errorf("exit of a killed container %+v", e)
		}
	})
}

func TestRealFailure(t *testing.T) {
	t.Parallel()
	withRuntimes(t, func(t *testing.T, runtime string) {
		n := newNode(t)
		req := n.oci(runtime, "a", false, "true")
		if err := os.RemoveAll(filepath.Join(n.dir, "bundle-a", "rootfs", "bin")); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Start(n.ctx, req); err == nil || !strings.Contains(err.Error(), "/bin/busybox") {
			t.Errorf("error: %v", err)
		}
	})
}

// A command that is to run sealed does not run from its file.
func TestSealedCommand(t *testing.T) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("needs a static busybox (Debian package busybox-static)")
	}
	n := newNode(t)
	for id, want := range map[string]string{"sealed": "/memfd:busybox (deleted)\n", "plain": busybox + "\n"} {
		req := n.shell(id, "")
		said := filepath.Join(n.dir, id+".exe")
		req.Command = []string{busybox, "sh", "-c", "readlink /proc/$$/exe >" + said + "; sleep 1000 & echo $! >" + req.PIDFile}
		req.Sealed = id == "sealed"
		n.start(req)
		if got, err := os.ReadFile(said); err != nil || string(got) != want {
			t.Errorf("%s ran from %q, %v", id, got, err)
		}
	}
}
