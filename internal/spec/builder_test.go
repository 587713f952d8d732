package spec

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/spec/origin"
)

func readSpec(t *testing.T, dir string) *specs.Spec {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, configName))
	must(t, err)
	s := &specs.Spec{}
	must(t, json.Unmarshal(content, s))
	return s
}

func TestWriteAndRemove(t *testing.T) {
	tc := plain(t)
	tc.req.Image.Volumes = []string{"/cache"}
	tc.cfg.Host.SysResource = false
	tc.c.Resources = &pod.Resources{OOMScoreAdj: -5}
	tc.req.Image.StopSignal = "SIGINT"
	b, err := New(tc.cfg)
	must(t, err)
	for range 2 { // the second time is after a crash
		out, err := b.Write(t.Context(), tc.req)
		must(t, err)
		if out.Path != filepath.Join(tc.cfg.StateDir, "containers/container1") || out.StopSignal != "SIGINT" || len(out.Warnings) != 1 || out.User.SupplementalGroups[0] != 0 {
			t.Errorf("%+v", out)
		}
	}
	dir := filepath.Join(tc.cfg.StateDir, "containers/container1")
	for name, mode := range map[string]fs.FileMode{dir: fs.ModeDir | 0o700, filepath.Join(dir, configName): 0o600} {
		if info, err := os.Stat(name); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if s := readSpec(t, dir); s.Root.Path != tc.req.Rootfs || s.Process.Args[0] != "/app" {
		t.Errorf("%+v", s)
	}
	other := filepath.Join(tc.cfg.RootDir, "containers/container1/upper")
	must(t, os.Mkdir(other, 0o700))
	for range 2 {
		must(t, b.Remove(t.Context(), "container1"))
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the bundle: %v", err)
	}
	if _, err := os.Stat(filepath.Join(tc.cfg.RootDir, "containers/container1/volumes")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the volumes: %v", err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("what belongs to somebody else: %v", err)
	}
	must(t, os.Remove(other))
	must(t, b.Remove(t.Context(), "container1"))
	if _, err := os.Stat(filepath.Dir(other)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the empty folder: %v", err)
	}
}

func TestRemoveKeepsWhatIsMounted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount")
	}
	tc := plain(t)
	b, err := New(tc.cfg)
	must(t, err)
	_, err = b.Write(t.Context(), tc.req)
	must(t, err)
	root := filepath.Join(tc.cfg.StateDir, "containers/container1/rootfs")
	precious := t.TempDir()
	must(t, os.WriteFile(filepath.Join(precious, "file"), nil, 0o600))
	must(t, os.Mkdir(root, 0o700))
	must(t, unix.Mount(precious, root, "", unix.MS_BIND, ""))
	err = b.Remove(t.Context(), "container1")
	must(t, unix.Unmount(root, unix.MNT_DETACH))
	if !errors.Is(err, errdefs.ErrPrecondition) || !strings.Contains(err.Error(), "still mounted") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(precious, "file")); err != nil {
		t.Errorf("removed what was mounted: %v", err)
	}
	must(t, b.Remove(t.Context(), "container1"))
}

func TestIdsAreNoPaths(t *testing.T) {
	tc := plain(t)
	b, err := New(tc.cfg)
	must(t, err)
	for _, id := range []string{"", ".", "..", "../x", "a/b"} {
		if err := b.Remove(t.Context(), id); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("remove %q: %v", id, err)
		}
		tc.req.Container.ID = pod.ContainerID(id)
		if _, err := b.Write(t.Context(), tc.req); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("write %q: %v", id, err)
		}
	}
}

func TestUpdate(t *testing.T) {
	tc := plain(t)
	b, err := New(tc.cfg)
	must(t, err)
	if err := b.Update(t.Context(), tc.record, tc.req.Container); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("without a bundle: %v", err)
	}
	out, err := b.Write(t.Context(), tc.req)
	must(t, err)
	before := readSpec(t, out.Path)
	tc.c.Resources = &pod.Resources{MemoryLimit: 1 << 20, CPUShares: 5, OOMScoreAdj: 7}
	must(t, b.Update(t.Context(), tc.record, tc.req.Container))
	after := readSpec(t, out.Path)
	r := after.Linux.Resources
	if *r.Memory.Limit != 1<<20 || *r.CPU.Shares != 5 || *after.Process.OOMScoreAdj != 7 || len(r.Devices) != 1 {
		t.Errorf("%+v, score %d", r, *after.Process.OOMScoreAdj)
	}
	after.Linux.Resources, after.Process.OOMScoreAdj = before.Linux.Resources, before.Process.OOMScoreAdj
	a, _ := json.Marshal(before)
	z, _ := json.Marshal(after)
	if string(a) != string(z) {
		t.Errorf("something else changed:\n%s\n%s", a, z)
	}
	tc.c.Resources.MemoryLimit = -7
	if err := b.Update(t.Context(), tc.record, tc.req.Container); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("a wrong limit: %v", err)
	}
}

func TestWriteSandbox(t *testing.T) {
	tc := plain(t)
	tc.record.Config.Annotations = map[string]string{"a": "1"}
	b, err := New(tc.cfg)
	must(t, err)
	for range 2 {
		_, err = b.WriteSandbox(t.Context(), tc.record, tc.req.Handler)
		must(t, err)
	}
	out, err := b.WriteSandbox(t.Context(), tc.record, tc.req.Handler)
	must(t, err)
	s := readSpec(t, out.Path)
	p := s.Process
	if p.User.UID != 65535 || p.User.GID != 65535 || !p.NoNewPrivileges || !s.Root.Readonly || *p.OOMScoreAdj != -998 || out.StopSignal != "SIGTERM" {
		t.Errorf("%+v", p)
	}
	same(t, "args", p.Args, []string{"/pause", "pause"})
	if c := p.Capabilities; c == nil || len(c.Bounding)+len(c.Effective)+len(c.Permitted)+len(c.Inheritable)+len(c.Ambient) > 0 {
		t.Errorf("capabilities %+v", c)
	}
	w := &build{spec: s}
	if got := namespaces(w); got[specs.PIDNamespace] != "." || got[specs.NetworkNamespace] != "/ns/net." || got[specs.IPCNamespace] != "/ns/ipc." || got[specs.UTSNamespace] != "/ns/uts." {
		t.Errorf("namespaces %v", got)
	}
	if m := mountAt(w, "/pause"); m == nil || m.Source != tc.cfg.Monitor {
		t.Errorf("%+v", m)
	}
	if s.Linux.CgroupsPath != "/kubepods/pod1/pod1" || s.Annotations[origin.Type] != "sandbox" || s.Annotations["a"] != "" || s.Linux.Seccomp == nil {
		t.Errorf("%s, %v", s.Linux.CgroupsPath, s.Annotations)
	}
	must(t, b.Remove(t.Context(), "pod1"))

	tc.cfg.Monitor = filepath.Join(t.TempDir(), "none")
	b, err = New(tc.cfg)
	must(t, err)
	if _, err := b.WriteSandbox(t.Context(), tc.record, tc.req.Handler); err == nil {
		t.Error("a pause program that is not there")
	}
	must(t, os.WriteFile(tc.cfg.Monitor, nil, 0o700))
	if _, err := b.WriteSandbox(t.Context(), tc.record, tc.req.Handler); err == nil || !strings.Contains(err.Error(), "chmod 755") {
		t.Errorf("a pause program for root only: %v", err)
	}
}

func TestASandboxIsToldItsHostName(t *testing.T) {
	tc := plain(t)
	must(t, os.WriteFile(filepath.Join(tc.record.Sandbox.Dir, pod.FileHostname), []byte("chosen\n"), 0o600))
	b, err := New(tc.cfg)
	must(t, err)
	out, err := b.WriteSandbox(t.Context(), tc.record, pod.HandlerInfo{Name: "runsc", SandboxProcess: true, OwnKernel: true})
	must(t, err)
	s := readSpec(t, out.Path)
	if s.Hostname != "chosen" {
		t.Errorf("%q", s.Hostname)
	}
	if s.Linux.Seccomp != nil {
		t.Error("a filter for a process that only waits, in a kernel of its own")
	}
}
