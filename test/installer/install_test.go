package installer

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/failpoint"
	"fairlead.run/test/node"
)

// names are the handlers in a status, sorted.
func names(s *runtimeapi.StatusResponse) []string {
	var all []string
	for _, h := range s.GetRuntimeHandlers() {
		if h.GetName() != "" {
			all = append(all, h.GetName())
		}
	}
	if len(all) == 0 {
		var config struct {
			Containerd struct {
				Runtimes map[string]any `json:"runtimes"`
			} `json:"containerd"`
		}
		_ = json.Unmarshal([]byte(s.GetInfo()["config"]), &config)
		all = slices.Collect(maps.Keys(config.Containerd.Runtimes))
	}
	slices.Sort(all)
	return all
}

// bundle is a payload on the disk.
type bundle struct {
	dir string
	payload.RuntimePayload
}

// newBundle begins a payload with one handler.
func newBundle(t *testing.T, kind, version string) *bundle {
	t.Helper()
	return &bundle{dir: t.TempDir(), RuntimePayload: payload.RuntimePayload{
		APIVersion: payload.APIVersion, Kind: payload.KindPayload, Type: kind, Version: version, OS: "linux",
		Architectures: []string{runtime.GOARCH},
	}}
}

func (b *bundle) add(t *testing.T, name string, data []byte, mode string) {
	t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	b.Files = append(b.Files, payload.File{Path: name, Mode: mode, Size: int64(len(data)), SHA256: hex.EncodeToString(sum[:])})
}

func (b *bundle) addFrom(t *testing.T, name, from string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	b.add(t, name, data, "0755")
}

// save writes the manifest.
func (b *bundle) save(t *testing.T) *bundle {
	t.Helper()
	data, err := json.Marshal(b.RuntimePayload)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.dir, payload.ManifestName), data, 0o644); err != nil {
		t.Fatal(err)
	}
	return b
}

// kata is a stand-in for Kata: a shim of runc's kind by another name, that of the
// daemon's own release, and with CRI-O runc itself.
func (d *daemon) kata(version string) *bundle {
	d.Helper()
	b := newBundle(d.T, "kata-containers", version)
	b.add(d.T, "share/version", []byte(version+"\n"), "0644")
	if d.isCRIO() {
		runc, err := exec.LookPath("runc")
		if err != nil {
			d.Fatal(err)
		}
		b.addFrom(d.T, "bin/runc", runc)
		b.add(d.T, "bin/kata-runtime", eased(`"${0%/*}/runc"`), "0755")
		b.Handlers = []payload.Handler{{Name: "kata", CRIO: &payload.CRIOHandler{RuntimeType: "oci", RuntimePath: "bin/kata-runtime", RuntimeRoot: d.path("state/kata")}}}
		return b.save(d.T)
	}
	b.addFrom(d.T, "bin/containerd-shim-kata-v2", filepath.Join(filepath.Dir(d.program), "containerd-shim-runc-v2"))
	b.Handlers = []payload.Handler{{Name: "kata", Containerd: &payload.ContainerdHandler{RuntimeType: "io.containerd.kata.v2", RuntimePath: "bin/containerd-shim-kata-v2"}}}
	return b.save(d.T)
}

// vmShim is the shim of small below CRI-O, which takes no other kind of name.
const vmShim = "containerd-shim-small-v2"

// small is a payload that is quickly copied: nothing of it is run. Its handler has all
// settings that there are, so that it is seen whether daemons tell them as they were written.
func small(t *testing.T, kind, version string) *bundle {
	t.Helper()
	b := newBundle(t, kind, version)
	b.add(t, "shim", []byte("#!/bin/sh\necho "+version+"\n"), "0755")
	b.add(t, vmShim, []byte("#!/bin/sh\n"), "0755")
	b.Configs = []payload.Config{{Path: "shim.toml", Content: "program = \"" + payload.PayloadDir + "/shim\"\n"}}
	b.Handlers = []payload.Handler{{
		Name: kind, Containerd: &payload.ContainerdHandler{
			RuntimeType: "io.containerd." + kind + ".v1", RuntimePath: "shim",
			PodAnnotations: []string{"dev.test.*", "b"}, ContainerAnnotations: []string{"dev.test.*"}, PrivilegedWithoutHostDevices: true,
			Options: &payload.ContainerdOptions{TypeURL: "io.containerd.test.v1.options", ConfigPath: payload.ConfigDir + "/shim.toml", BinaryName: payload.PayloadDir + "/shim", SystemdCgroup: new(true)},
		},
		CRIO: &payload.CRIOHandler{
			RuntimeType: "vm", RuntimePath: vmShim, RuntimeConfigPath: payload.ConfigDir + "/shim.toml", RuntimeRoot: "/run/small",
			AllowedAnnotations: []string{"io.kubernetes.cri-o.Devices", "io.kubernetes.cri-o.ShmSize"}, PrivilegedWithoutHostDevices: true,
		},
	}}
	b.Checks = []payload.Check{{Name: "runs", Command: []string{"shim"}}}
	return b.save(t)
}

// crioShim is what CRI-O takes as gVisor's shim.
const crioShim = "containerd-shim-runsc-v2"

// gvisor is the real gVisor, with the handler and the script that deploy has for CRI-O.
func (d *daemon) gvisor(version string) *bundle {
	d.Helper()
	t := d.T
	runsc, shims := node.Runsc(), os.Getenv("FAIRLEAD_TEST_SHIMS")
	if runsc == "" || shims == "" {
		t.Skip("gVisor's runsc or its shim is not here: FAIRLEAD_TEST_RUNSC and FAIRLEAD_TEST_SHIMS name them; make test-installer sets these")
	}
	b := newBundle(t, "gvisor", version)
	program := "runsc"
	if d.isCRIO() {
		program = "runsc-eased"
		b.add(t, program, eased(`"${0%/*}/runsc"`), "0755")
	}
	b.addFrom(t, "runsc", runsc)
	b.addFrom(t, crioShim, filepath.Join("../../deploy/payloads/gvisor/all", crioShim))
	b.addFrom(t, "containerd-shim-runsc-v1", filepath.Join(shims, "containerd-shim-runsc-v1"))
	b.Configs = []payload.Config{{Path: "runsc.toml", Content: "binary_name = \"" + payload.PayloadDir + "/" + program + "\"\n[runsc_config]\nnetwork = \"host\"\noverlay2 = \"none\"\n"}}
	b.Handlers = []payload.Handler{{Name: "runsc", Containerd: &payload.ContainerdHandler{
		RuntimeType: "io.containerd.runsc.v1", MinVersion: "1.7", RuntimePath: "containerd-shim-runsc-v1", PodAnnotations: []string{"dev.gvisor.*"},
		Options: &payload.ContainerdOptions{TypeURL: "io.containerd.runsc.v1.options", ConfigPath: payload.ConfigDir + "/runsc.toml"},
	}, CRIO: &payload.CRIOHandler{
		RuntimeType: "vm", RuntimePath: crioShim, RuntimeConfigPath: payload.ConfigDir + "/runsc.toml", RuntimeRoot: d.path("state/runsc"),
	}}}
	b.Checks = []payload.Check{{Name: "version", Command: []string{"runsc", "--version"}}}
	return b.save(t)
}

// outcome is one run of the command.
type outcome struct {
	results []payload.InstallResult
	code    int
	stderr  string
}

func (o outcome) first(t *testing.T) payload.InstallResult {
	t.Helper()
	if len(o.results) == 0 {
		t.Fatalf("no result, exit code %d: %s", o.code, o.stderr)
	}
	return o.results[0]
}

// fairlead runs fairlead install with the flags for this daemon.
func (d *daemon) fairlead(env []string, args ...string) outcome {
	d.Helper()
	return run(d.T, d.command(env, args...))
}

func (d *daemon) command(env []string, args ...string) *exec.Cmd {
	all := append([]string{"install"}, args...)
	distribution := "containerd"
	if d.isCRIO() {
		distribution = "crio"
	}
	all = append(all, "--distribution", distribution, "--cri-socket", d.socket(), "--cri-config", d.config(), "--binary-path", d.path("usr"),
		"--journal", d.path("journal"), "--restart", "command", "--restart-command", d.path("restart"), "--ready-file", d.path("ready"), "--restart-interval", "1ns", "--os", "debian")
	if !slices.Contains(args, "--wait") {
		all = append(all, "--wait", "3m") // a daemon may take that long where much else runs
	}
	cmd := exec.Command(filepath.Join(node.Bin, "fairlead"), all...)
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

func run(t *testing.T, cmd *exec.Cmd) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	o := outcome{code: cmd.ProcessState.ExitCode(), stderr: stderr.String()}
	for line := range strings.Lines(stdout.String()) {
		r, err := payload.DecodeResult([]byte(line))
		if err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		o.results = append(o.results, *r)
	}
	return o
}

// install has to succeed.
func (d *daemon) install(bundles ...*bundle) []payload.InstallResult {
	d.Helper()
	o := d.fairlead(nil, payloads(bundles)...)
	if o.code != 0 {
		d.Fatalf("install ended with %d: %+v\n%s", o.code, o.results, o.stderr)
	}
	return o.results
}

func payloads(bundles []*bundle) []string {
	var args []string
	for _, b := range bundles {
		args = append(args, "--payload", b.dir)
	}
	return args
}

func (d *daemon) uninstall(kind string) {
	d.Helper()
	if o := d.fairlead(nil, "uninstall", kind); o.code != 0 {
		d.Fatalf("uninstall ended with %d: %+v\n%s", o.code, o.results, o.stderr)
	}
}

// serves fails unless exactly these handlers are served.
func (d *daemon) serves(want ...string) {
	d.Helper()
	d.await()
	slices.Sort(want)
	if got := d.handlers(); !slices.Equal(got, want) {
		d.Fatalf("%v are served, want %v", got, want)
	}
}

// same fails unless the folders are as they were.
func same(t *testing.T, before, after map[string]string) {
	t.Helper()
	for name, was := range before {
		if is, ok := after[name]; !ok {
			t.Errorf("%s is gone", name)
		} else if is != was {
			t.Errorf("%s was\n%s\nand is\n%s", name, was, is)
		}
	}
	for name := range after {
		if _, ok := before[name]; !ok {
			t.Errorf("%s is new", name)
		}
	}
}

// bare says what is there of the installer.
func (d *daemon) bare() {
	d.Helper()
	for _, dir := range []string{"usr", "journal"} {
		if _, err := os.Stat(d.path(dir)); err == nil {
			d.Errorf("%s is left: %v", dir, slices.Sorted(maps.Keys(tree(d.T, d.path(dir)))))
		}
	}
}

// version is the folder of a version, "" if there is none; several are a failure.
func (d *daemon) version(kind, version string) string {
	d.Helper()
	found, err := filepath.Glob(d.path("usr/" + kind + "/" + version + "-*"))
	if err != nil || len(found) > 1 {
		d.Fatalf("version %s of %s is in %v: %v", version, kind, found, err)
	}
	if len(found) == 0 {
		return ""
	}
	return found[0]
}

func TestInstallAndUninstall(t *testing.T) {
	under(t, func(t *testing.T, d *daemon) {
		before := d.configFiles()
		d.serves("runc", "foreign")
		r := d.install(small(t, "test", "1"))[0]
		if r.State != payload.Installed || !r.Restarted || !slices.Equal(r.Handlers, []string{"test"}) || !strings.HasPrefix(r.Runtime, d.runtimeName()+" ") {
			t.Fatalf("%+v", r)
		}
		d.serves("runc", "foreign", "test")
		starts := d.starts()
		if r := d.install(small(t, "test", "1"))[0]; r.Restarted || d.starts() != starts {
			t.Fatalf("installing it again restarts: %+v", r)
		}
		two := d.install(small(t, "test", "2"), small(t, "other", "1"))
		if len(two) != 2 || d.starts() != starts+1 {
			t.Fatalf("two types take %d restarts", d.starts()-starts)
		}
		d.serves("runc", "foreign", "test", "other")
		d.uninstall("test")
		d.serves("runc", "foreign", "other")
		d.uninstall("other")
		d.serves("runc", "foreign")
		if o := d.fairlead(nil, "uninstall", "other"); o.code != 3 || o.first(t).Reason != payload.NotInstalled {
			t.Fatalf("uninstalled once more: %d %+v", o.code, o.results)
		}
		if o := d.fairlead(nil, "--payload", small(t, "other", "1").dir, "--remove"); o.code != 0 {
			t.Fatalf("removed once more: %d %+v", o.code, o.results)
		}
		same(t, before, d.configFiles())
		d.bare()
	})
}

// killed are the places that installs and uninstalls pass, in this order.
func places(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command(filepath.Join(node.Bin, "fairlead"), "install", "--payload", "/none", "--os", "debian")
	cmd.Env = append(os.Environ(), failpoint.Env+"=none=kill")
	out, _ := cmd.CombinedOutput()
	_, list, ok := strings.Cut(string(out), "there are: ")
	if !ok {
		t.Fatalf("the places are not listed: %s", out)
	}
	line, _, _ := strings.Cut(list, "\n")
	var all []string
	for place := range strings.SplitSeq(strings.TrimSpace(line), ", ") {
		if strings.HasPrefix(place, "install.") {
			all = append(all, place)
		}
	}
	return all
}
