package spec

import (
	"encoding/json"
	"errors"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// asked is everything that others say about a container: who asks for it, and
// the image.
type asked struct {
	Pod       pod.Config
	Container pod.ContainerConfig
	Image     pod.ImageConfig
}

// FuzzBuild makes the spec of any container. It is refused as the caller's fault
// or this host's, or has what every spec has to have.
func FuzzBuild(f *testing.F) {
	for _, seed := range []string{
		`{"Container":{"process":{"command":["a"]}}}`,
		`{"Pod":{"hostname":"h","security":{"privileged":true}},"Container":{"process":{"command":["a"],"tty":true},"security":{"privileged":true}}}`,
		`{"Container":{"mounts":[{"containerPath":"/m","hostPath":"/x","options":["nosuid"]}],"resources":{"unified":{"a":"b"}}},"Image":{"entrypoint":["e"],"env":["A=1"],"user":"web:extra","workingDir":"/w","volumes":["/v"],"stopSignal":"SIGINT"}}`,
	} {
		f.Add([]byte(seed))
	}
	for _, in := range []asked{{}, fullyAsked()} {
		b, err := json.Marshal(in)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var in asked
		if json.Unmarshal(b, &in) != nil {
			return
		}
		tc := plain(t)
		harmless(t, &in)
		tc.record.Config, *tc.c, tc.req.Image = in.Pod, in.Container, in.Image
		tc.record.Sandbox.PIDNS, tc.record.Sandbox.UserNS = "/ns/pid", "/ns/user"
		w, err := tc.build(t)
		if err != nil {
			if !slices.ContainsFunc([]error{errdefs.ErrInvalidArgument, errdefs.ErrUnimplemented, errdefs.ErrNotFound, errdefs.ErrPrecondition},
				func(kind error) bool { return errors.Is(err, kind) }) {
				t.Errorf("whose fault is this? %v", err)
			}
			return
		}
		wantWhole(t, tc, w)
	})
}

// fullyAsked has a bit of everything.
func fullyAsked() asked {
	uid, gid := int64(1000), int64(9)
	var in asked
	in.Pod = pod.Config{Hostname: "h", Annotations: map[string]string{"a": "b"}, Sysctls: map[string]string{"kernel.shm_rmid_forced": "1"}}
	in.Container = pod.ContainerConfig{
		Process:     pod.Process{Command: []string{"a"}, Args: []string{"b"}, Env: []pod.EnvVar{{Name: "A", Value: "1"}}, WorkingDir: "/w", TTY: true},
		Annotations: map[string]string{"a": "b"}, StopSignal: "SIGTERM",
		Mounts:    []pod.Mount{{ContainerPath: "/m", HostPath: "/x", ReadOnly: true, RecursiveReadOnly: true, Propagation: pod.PropagationPrivate, Options: []string{"nosuid"}}},
		Devices:   []pod.Device{{ContainerPath: "/dev/x", HostPath: "/dev/null", Permissions: "rwm"}},
		Resources: &pod.Resources{CPUPeriod: 100000, CPUQuota: 1000, CPUShares: 2, CpusetCPUs: "0", MemoryLimit: 1 << 24, OOMScoreAdj: 5, HugepageLimits: []pod.HugepageLimit{{PageSize: "2MB", Limit: 5}}},
		Security: pod.Security{
			Identity: pod.Identity{UID: &uid, GID: &gid, SupplementalGroups: []int64{5}}, ReadOnlyRootfs: true, NoNewPrivileges: true,
			MaskedPaths: []string{"/proc/kcore"}, ReadOnlyPaths: []string{"/proc/sys"}, Seccomp: &pod.Profile{Type: pod.ProfileUnconfined},
		},
	}
	in.Image = pod.ImageConfig{User: "web", Entrypoint: []string{"e"}, Cmd: []string{"c"}, Env: []string{"A=1"}, WorkingDir: "w", StopSignal: "SIGINT", Volumes: []string{"/v"}}
	return in
}

// harmless keeps what is made on the host in a folder of the test.
func harmless(t *testing.T, in *asked) {
	dir := t.TempDir()
	for i := range in.Container.Mounts {
		m := &in.Container.Mounts[i]
		m.HostPath, m.Image = filepath.Join(dir, path.Clean("/"+strings.ReplaceAll(m.HostPath, "\x00", ""))), nil
		m.UIDMappings, m.GIDMappings = nil, nil // which something else mounts
	}
	for i := range in.Container.Devices {
		d := &in.Container.Devices[i]
		d.HostPath = filepath.Join("/dev", path.Clean("/"+strings.ReplaceAll(d.HostPath, "\x00", "")))
	}
	for _, p := range []*pod.Profile{in.Container.Security.Seccomp, in.Pod.Security.Seccomp} {
		if p != nil {
			p.Ref = filepath.Join(dir, path.Clean("/"+strings.ReplaceAll(p.Ref, "\x00", "")))
		}
	}
}

func wantWhole(t *testing.T, tc *testCase, w *build) {
	t.Helper()
	s := w.spec
	if _, err := json.Marshal(s); err != nil {
		t.Errorf("it cannot be written: %v", err)
	}
	if len(s.Process.Args) == 0 || s.Process.Args[0] == "" || !path.IsAbs(s.Process.Cwd) || path.Clean(s.Process.Cwd) != s.Process.Cwd {
		t.Errorf("runs %q in %q", s.Process.Args, s.Process.Cwd)
	}
	if s.Root.Path != tc.req.Rootfs || s.Process.Capabilities == nil || w.stopSignal == "" {
		t.Errorf("root %q, capabilities %v, stop signal %q", s.Root.Path, s.Process.Capabilities, w.stopSignal)
	}
	texts := slices.Concat(s.Process.Args, s.Process.Env, []string{s.Process.Cwd}, s.Linux.MaskedPaths, s.Linux.ReadonlyPaths)
	at := map[string]bool{}
	for _, m := range s.Mounts {
		if !path.IsAbs(m.Destination) || path.Clean(m.Destination) != m.Destination || m.Destination == "/" || at[m.Destination] {
			t.Errorf("mount %+v", m)
		}
		at[m.Destination] = true
		texts = append(texts, m.Destination, m.Source)
	}
	for _, text := range texts {
		if strings.ContainsRune(text, 0) {
			t.Errorf("a zero byte in %q", text)
		}
	}
	if !tc.c.Security.Privileged && slices.Contains(s.Process.Capabilities.Bounding, "CAP_SYS_ADMIN") && tc.c.Security.Capabilities == nil {
		t.Error("a container that nobody gave rights has CAP_SYS_ADMIN")
	}
}
