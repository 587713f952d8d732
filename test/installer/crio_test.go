package installer

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/test/node"
)

// crioRelease is CRI-O, if the folder of crio, pinns and conmon is named.
func crioRelease() release {
	r := release{name: "CRI-O"}
	if dir := os.Getenv("FAIRLEAD_TEST_CRIO"); dir != "" {
		r.program = filepath.Join(dir, "crio")
	}
	return r
}

// startCRIO starts CRI-O, or skips the test.
func startCRIO(t *testing.T) *daemon {
	t.Helper()
	return start(t, here(t, crioRelease())[0], "")
}

const crioMain = `# CRI-O of this machine. Ask ops before you change it.
[crio]
root = %[1]q
runroot = %[2]q
storage_driver = "vfs"   # do not touch
log_dir = %[3]q
version_file = %[4]q
clean_shutdown_file = %[5]q

[crio.api]
  listen = %[6]q

[crio.runtime]
  cgroup_manager = "cgroupfs"
  conmon_cgroup = "pod"
  conmon = %[7]q
  pinns_path = %[8]q
  namespaces_dir = %[9]q
  container_exits_dir = %[10]q
  container_attach_socket_dir = %[11]q
  default_runtime = "runc"
  hooks_dir = []
  # mixed tabs	and blanks

[crio.image]
pause_image = %[12]q # ours
pause_command = ""
signature_policy = %[13]q
signature_policy_dir = %[15]q
namespaced_auth_dir = %[16]q

[crio.network]
network_dir = %[14]q

[crio.nri]
enable_nri = false
`

const crioRunc = `# two handlers of runc
[crio.runtime.runtimes.runc]
  runtime_path = %[1]q
runtime_root = %[2]q

      [crio.runtime.runtimes."foreign"]
        runtime_path = %[1]q   # of another team
  runtime_root = %[3]q
# the end, without a newline`

// eased is a program that becomes another one, for CRI-O. That gives the first process
// of each pod an oom_score_adj below its own, which not every root may do, and has no
// restrict_oom_score_adj as containerd; and so small a share of the processors that it
// may wait for minutes where other tests run.
func eased(program string) []byte {
	return fmt.Appendf(nil, `#!/bin/sh
for arg; do
	[ ! -f "$arg/config.json" ] || sed -i 's/"oomScoreAdj": *-[0-9]*/"oomScoreAdj":0/; s/"shares": *2\b/"shares":1024/' "$arg/config.json"
done
exec %s "$@"
`, program)
}

// writeCRIO writes a configuration as an admin has it, with folders of its own.
func (d *daemon) writeCRIO() {
	d.Helper()
	runc, err := exec.LookPath("runc")
	if err != nil {
		d.Skip("runc is not here; make packages installs it")
	}
	hide(d.T)
	d.Cleanup(leftovers)
	d.write("runc", string(eased(runc)))
	if err := os.Chmod(d.path("runc"), 0o755); err != nil {
		d.Fatal(err)
	}
	bin := filepath.Dir(d.program)
	d.write("etc/crio.conf", fmt.Sprintf(crioMain, d.path("root"), d.path("state/storage"), d.path("log.d"), d.path("state/version"), d.path("state/clean"),
		d.socket(), filepath.Join(bin, "conmon"), filepath.Join(bin, "pinns"), d.path("state/ns"), d.path("state/exits"), d.path("state/attach"),
		pause, d.path("policy.json"), d.path("cni"), d.path("policies"), d.path("auth")))
	d.write("etc/crio.conf.d/10-runc.conf", fmt.Sprintf(crioRunc, d.path("runc"), d.path("state/runc"), d.path("state/foreign")))
	d.write("policy.json", `{"default": [{"type": "insecureAcceptAnything"}]}`)
	d.write("registries.conf", fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = true\n", node.Registry.Host()))
	d.write("cni/README", "no networks: pods have the host's")
}

// hide puts an empty file system over the only folder of the machine that CRI-O writes
// to without a setting for it.
func hide(t *testing.T) {
	t.Helper()
	const dir = "/var/lib"
	if err := syscall.Mount("none", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}

// leftovers removes the cgroup that CRI-O leaves, of those of its containers.
func leftovers() {
	for _, pattern := range []string{"/sys/fs/cgroup/crio", "/sys/fs/cgroup/*/crio"} {
		found, _ := filepath.Glob(pattern)
		for _, dir := range found {
			_ = syscall.Rmdir(dir) // one that is in use stays
		}
	}
}

// hangup is the restart by a signal, which the installer sends to a process that is
// called crio.
func (d *daemon) hangup(args ...string) outcome {
	d.Helper()
	cmd := d.command(nil, args...)
	at := slices.Index(cmd.Args, "--restart")
	cmd.Args = slices.Concat(cmd.Args[:at], []string{"--restart", "sighup"}, cmd.Args[at+4:])
	return run(d.T, cmd)
}

// CRI-O that has read its files by SIGHUP starts no container on handlers that do not
// name their monitor. So that is refused, and done where all do.
func TestSighup(t *testing.T) {
	d := startCRIO(t)
	before := d.configFiles()
	r := d.hangup("--payload", d.kata("1").dir).first(t)
	if r.State != payload.Refused || r.Reason != payload.ConfigurationProblem || !strings.Contains(r.Message, "monitor_path") {
		t.Fatalf("%+v", r)
	}
	same(t, before, d.configFiles())
	monitored := strings.ReplaceAll(before["/crio.conf.d/10-runc.conf"], "runtime_path", fmt.Sprintf("monitor_path = %q\nruntime_path", filepath.Join(filepath.Dir(d.program), "conmon")))
	_, monitored, _ = strings.Cut(monitored, "\n") // what tree has of its mode
	d.write("etc/crio.conf.d/10-runc.conf", monitored+"\n[crio.runtime.runtimes.crun]\nmonitor_path = \"/usr/bin/conmon\"\n")
	before = d.configFiles()
	d.restart()
	starts := d.starts()
	if r := d.hangup("--payload", small(t, "test", "1").dir).first(t); r.State != payload.Installed || d.starts() != starts {
		t.Fatalf("%+v, and %d restarts", r, d.starts()-starts)
	}
	d.serves("foreign", "runc", "test")
	for _, handler := range []string{"runc", "foreign"} {
		d.cri().remove(t, d.cri().pod(t, "on-"+handler, handler))
	}
	if r := d.hangup("uninstall", "test").first(t); r.State != payload.Removed {
		t.Fatalf("%+v", r)
	}
	d.serves("foreign", "runc")
	d.cri().remove(t, d.cri().pod(t, "last", "runc"))
	same(t, before, d.configFiles())
	d.bare()
}

// A configuration of CRI-O's that it would not start with, or that has the handler
// already, is left alone.
func TestConfigurationsOfCRIO(t *testing.T) {
	d := startCRIO(t)
	dropIn := d.path("etc/crio.conf.d/50-more.conf")
	for name, c := range map[string]struct {
		make func() error
		want string
	}{
		"garbage":              {func() error { return os.WriteFile(dropIn, []byte("[[["), 0o644) }, dropIn},
		"half written":         {func() error { return os.WriteFile(dropIn+".tmp", []byte("[crio"), 0o644) }, dropIn + ".tmp"},
		"a link to a folder":   {func() error { return os.Symlink("/etc", dropIn) }, dropIn},
		"a link to nothing":    {func() error { return os.Symlink("/none", dropIn) }, dropIn},
		"handler by the admin": {func() error { return os.WriteFile(dropIn, []byte("[crio.runtime.runtimes.test]\n"), 0o644) }, dropIn + ":1: handler test is configured by somebody else"},
	} {
		if err := c.make(); err != nil {
			t.Fatal(err)
		}
		o := d.fairlead(nil, "--payload", small(t, "test", "1").dir)
		if r := o.first(t); r.State != payload.Refused || !strings.Contains(r.Message, c.want) || r.Restarted {
			t.Errorf("%s: %d %+v", name, o.code, r)
		}
		if exists(d.drop("test")) {
			t.Errorf("%s: it was written to", name)
		}
		for _, path := range []string{dropIn, dropIn + ".tmp"} {
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	d.bare()
	if d.starts() != 1 {
		t.Errorf("CRI-O was started %d times", d.starts())
	}
}

// A node with all in one file has no folder of drop-ins afterwards, either.
func TestCRIOWithoutDropIns(t *testing.T) {
	d := startCRIO(t)
	var all []byte
	for _, path := range []string{d.config(), d.config() + ".d/10-runc.conf"} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, data...)
	}
	d.write("etc/crio.conf", string(all))
	if err := os.RemoveAll(d.config() + ".d"); err != nil {
		t.Fatal(err)
	}
	d.restart()
	before := d.configFiles()
	d.install(small(t, "test", "1"))
	d.serves("runc", "foreign", "test")
	d.uninstall("test")
	d.serves("runc", "foreign")
	same(t, before, d.configFiles())
	d.bare()
}
