package spec

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/pod"
	"fairlead.run/internal/spec/host"
)

// pause is what the pod's own process does in these tests, where this test
// binary stands for the monitor's.
func pause() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGTERM)
	_, _ = os.Stdout.WriteString("waiting\n")
	<-c
	os.Exit(0)
}

// runtimes are those of this machine that run containers here.
func runtimes(t *testing.T) []string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to run containers")
	}
	var out []string
	for _, name := range []string{"runc", "crun"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Logf("%s is not installed", name)
			continue
		}
		out = append(out, name)
	}
	if len(out) == 0 {
		t.Skip("needs runc or crun")
	}
	return out
}

// busybox makes a root file system.
func busybox(t *testing.T) string {
	t.Helper()
	from, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("needs busybox (Debian package busybox-static)")
	}
	content, err := os.ReadFile(from)
	must(t, err)
	root := t.TempDir()
	must(t, os.Chmod(root, 0o755))
	for _, d := range []string{"bin", "etc"} {
		must(t, os.Mkdir(filepath.Join(root, d), 0o755))
	}
	must(t, os.WriteFile(filepath.Join(root, "bin/busybox"), content, 0o755))
	for _, applet := range []string{"sh", "cat", "id", "pwd", "grep", "stat", "ls", "env", "mkdir", "hostname", "df"} {
		must(t, os.Symlink("busybox", filepath.Join(root, "bin", applet)))
	}
	must(t, os.WriteFile(filepath.Join(root, "etc/passwd"), []byte(testPasswd), 0o644))
	must(t, os.WriteFile(filepath.Join(root, "etc/group"), []byte(testGroup), 0o644))
	return root
}

// genuine is a case with what this host really has, on the node's network.
func genuine(t *testing.T, script string) *testCase {
	t.Helper()
	tc := plain(t)
	tc.req.Rootfs = busybox(t)
	h, err := host.Probe()
	must(t, err)
	tc.cfg.Host = h
	tc.record.ID, tc.req.Container.ID = pod.NewID(), pod.NewContainerID()
	tc.record.Config.Security.Namespaces.Network = pod.NamespaceNode
	tc.record.Sandbox.UTSNS, tc.record.Sandbox.NetNS, tc.record.Sandbox.IPCNS = "", "", ""
	tc.c.Security.Namespaces.IPC = pod.NamespaceContainer
	tc.record.Sandbox.Cgroup = "/fairlead-spec-test"
	tc.c.Process.Command = []string{"/bin/sh", "-c", script}
	t.Cleanup(func() {
		dirs, _ := filepath.Glob("/sys/fs/cgroup/*/fairlead-spec-test")
		for _, d := range dirs {
			_ = os.Remove(d)
		}
		_ = os.Remove("/sys/fs/cgroup/fairlead-spec-test")
	})
	return tc
}

// run runs a bundle to its end and returns what it printed.
func run(t *testing.T, runtime, id, bundle string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, runtime, "--root", filepath.Join(t.TempDir(), "state"), "run", "--bundle", bundle, id)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if strings.Contains(stderr.String(), "hybrid mode not supported") {
			t.Skipf("%s does not run on cgroup v1 beside a v2 tree with controllers in it", runtime)
		}
		t.Fatalf("%s: %v\n%s%s", runtime, err, stdout.String(), stderr.String())
	}
	return stdout.String() + stderr.String()
}

// What a container sees, from inside, with real runtimes.
func TestContainersRun(t *testing.T) {
	for _, runtime := range runtimes(t) {
		t.Run(runtime, func(t *testing.T) {
			tc := genuine(t, `
				echo user $(id -u):$(id -g) groups $(id -G)
				echo cwd $PWD env $GREETING
				grep -E '^(CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status
				echo oom $(cat /proc/self/oom_score_adj)
				echo nofile $(ulimit -n)
				cat /etc/hostname; cat /data/file
				mkdir /data/x 2>/dev/null || echo read-only mount
				mkdir /new 2>/dev/null || echo read-only root
				cat /proc/kcore | busybox wc -c
				(echo > /proc/sys/vm/swappiness) 2>/dev/null || echo protected
				stat -c '%a %t:%T' /dev/mine
				echo volume $(cat /vol/seed) $(stat -c %u:%g /vol)
				df /dev/shm | grep -c /dev/shm`)
			data := t.TempDir()
			must(t, os.WriteFile(filepath.Join(data, "file"), []byte("mounted\n"), 0o644))
			must(t, os.WriteFile(filepath.Join(tc.record.Sandbox.Dir, pod.FileHostname), []byte("name\n"), 0o644))
			must(t, os.Mkdir(filepath.Join(tc.req.Rootfs, "vol"), 0o755))
			must(t, os.WriteFile(filepath.Join(tc.req.Rootfs, "vol/seed"), []byte("seeded"), 0o644))
			must(t, os.Chown(filepath.Join(tc.req.Rootfs, "vol"), 5, 6))
			tc.cfg.DefaultRlimits = map[string]Rlimit{"nofile": {Soft: 321, Hard: 400}}
			tc.c.Process.WorkingDir = "/work/here"
			tc.c.Process.Env = []pod.EnvVar{{Name: "GREETING", Value: "hello"}}
			tc.c.Mounts = []pod.Mount{{ContainerPath: "/data", HostPath: data, ReadOnly: true}}
			tc.c.Devices = []pod.Device{{HostPath: "/dev/null", ContainerPath: "/dev/mine", Permissions: "r"}}
			tc.c.Resources = &pod.Resources{OOMScoreAdj: 123, CPUShares: 100, MemoryLimit: 64 << 20, Unified: map[string]string{"pids.max": "30"}}
			tc.req.Image.Volumes = []string{"/vol"}
			s := &tc.c.Security
			s.Identity = pod.Identity{Username: "web", SupplementalGroups: []int64{7}}
			s.NoNewPrivileges, s.ReadOnlyRootfs = true, true
			s.Capabilities = &pod.Capabilities{Drop: []string{"ALL"}, Ambient: []string{"NET_BIND_SERVICE"}}
			s.Seccomp = &pod.Profile{Type: pod.ProfileRuntimeDefault}
			s.MaskedPaths, s.ReadOnlyPaths = []string{"/proc/kcore"}, []string{"/proc/sys"}
			b, err := New(tc.cfg)
			must(t, err)
			bundle, err := b.Write(t.Context(), tc.req)
			must(t, err)
			got := strings.ReplaceAll(run(t, runtime, string(tc.req.Container.ID), bundle.Path), "\t", " ")
			for _, want := range []string{
				"user 1000:2000 groups 2000 7 3000 3001", "cwd /work/here env hello",
				"CapEff: 0000000000000400", "CapBnd: 0000000000000400", "CapAmb: 0000000000000400", "NoNewPrivs: 1", "Seccomp: 2",
				"oom 123", "nofile 321", "name\nmounted\n", "read-only mount", "read-only root", "\n0\n", "protected", "1:3", "volume seeded 5:6", "\n1\n",
			} {
				if !strings.Contains(got, want) {
					t.Errorf("%q is missing", want)
				}
			}
			if t.Failed() {
				t.Log(got)
			}
			must(t, b.Remove(t.Context(), string(tc.req.Container.ID)))
		})
	}
}

func TestPrivilegedContainersRun(t *testing.T) {
	for _, runtime := range runtimes(t) {
		t.Run(runtime, func(t *testing.T) {
			tc := genuine(t, `grep ^CapEff /proc/self/status; ls /dev; grep ' /sys ' /proc/self/mounts`)
			tc.record.Config.Security.Privileged, tc.c.Security.Privileged = true, true
			b, err := New(tc.cfg)
			must(t, err)
			bundle, err := b.Write(t.Context(), tc.req)
			must(t, err)
			got := run(t, runtime, string(tc.req.Container.ID), bundle.Path)
			own, err := os.ReadFile("/proc/self/status")
			must(t, err)
			for line := range strings.Lines(string(own)) {
				if strings.HasPrefix(line, "CapBnd:") && !strings.Contains(got, strings.Fields(line)[1]) {
					t.Errorf("capabilities are not %s", line)
				}
			}
			if !strings.Contains(got, "/sys sysfs rw") || !strings.Contains(got, "kmsg") {
				t.Errorf("/sys or the devices: %s", got)
			}
			must(t, b.Remove(t.Context(), string(tc.req.Container.ID)))
		})
	}
}

// The pod's own process, from the bundle to its end by SIGTERM.
func TestSandboxRuns(t *testing.T) {
	for _, runtime := range runtimes(t) {
		t.Run(runtime, func(t *testing.T) {
			tc := genuine(t, "")
			exe := staticCopy(t)
			tc.cfg.Monitor = exe
			tc.record.Sandbox.Shm = ""
			b, err := New(tc.cfg)
			must(t, err)
			bundle, err := b.WriteSandbox(t.Context(), tc.record, tc.req.Handler)
			must(t, err)
			id := string(tc.record.ID)
			cmd := exec.Command(runtime, "--root", filepath.Join(t.TempDir(), "state"), "run", "--bundle", bundle.Path, id)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.StdoutPipe()
			must(t, err)
			must(t, cmd.Start())
			line := make([]byte, 100)
			n, _ := out.Read(line)
			_ = cmd.Process.Signal(syscall.SIGTERM) // which the runtime passes on
			err = cmd.Wait()
			if strings.Contains(stderr.String(), "hybrid mode not supported") {
				t.Skipf("%s does not run on cgroup v1 beside a v2 tree with controllers in it", runtime)
			}
			if err != nil || string(line[:n]) != "waiting\n" {
				t.Errorf("printed %q, ended %v: %s", line[:n], err, stderr.String())
			}
			must(t, b.Remove(t.Context(), id))
		})
	}
}

// staticCopy is this test binary where everybody may run it, if it needs no
// libraries.
func staticCopy(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	content, err := os.ReadFile(exe)
	must(t, err)
	if bytes.Contains(content[:4096], []byte("ld-linux")) {
		t.Skip("needs a static test binary (CGO_ENABLED=0)")
	}
	dir, err := os.MkdirTemp("", "fairlead-pause-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	to := filepath.Join(dir, "pause")
	must(t, os.WriteFile(to, content, 0o755))
	return to
}
