package runtimetest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/pod"
)

const busyboxPath = "/bin/busybox"

// scene is one check at work.
type scene struct {
	*testing.T
	s Subject
	h Handler
}

// box is a container of a scene.
type box struct {
	*pod.Container
	scene  *scene
	bundle pod.Bundle
	log    string
	spec   *specs.Spec
}

// script is a container that runs a shell script.
func (s *scene) script(text string) *box {
	return s.box("/bin/sh", "-c", text)
}

// box makes a bundle. It and the container are removed at the test's end.
func (s *scene) box(argv ...string) *box {
	s.Helper()
	id := pod.NewContainerID()
	dir := filepath.Join(s.s.StateDir, "containers", string(id))
	b := &box{
		Container: &pod.Container{ID: id},
		scene:     s,
		bundle:    pod.Bundle{Path: dir},
		log:       filepath.Join(s.TempDir(), "log"),
		spec:      spec(s.h.Info().OCI, string(id), s.s.Systemd, argv),
	}
	for _, d := range []string{"bin", "dev", "proc", "sys", "tmp"} {
		s.must(os.MkdirAll(filepath.Join(dir, "rootfs", d), 0o755))
	}
	program, err := os.ReadFile(busyboxPath)
	s.must(err)
	s.must(os.WriteFile(filepath.Join(dir, "rootfs/bin/busybox"), program, 0o755))
	for _, name := range strings.Fields("sh sleep cat echo id env pwd kill setsid test touch mount stty true") {
		s.must(os.Symlink("busybox", filepath.Join(dir, "rootfs/bin", name)))
	}
	b.write()
	s.Cleanup(b.discard)
	return b
}

func (b *box) discard() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s := b.scene
	if err := s.h.Kill(ctx, b.Container, "SIGKILL", true); err != nil {
		s.Error(err)
	}
	if err := s.h.Delete(ctx, string(b.ID)); err != nil {
		s.Error(err)
	}
	b.ended(ctx)
	if err := s.s.Forget(ctx, string(b.ID)); err != nil {
		s.Error(err)
	}
	if err := os.RemoveAll(b.bundle.Path); err != nil {
		s.Error(err)
	}
	b.noCgroup()
}

// noCgroup fails if the container's cgroup is left in any hierarchy.
func (b *box) noCgroup() {
	b.scene.Helper()
	for _, pattern := range []string{"/sys/fs/cgroup/fairlead-test/*", "/sys/fs/cgroup/*/fairlead-test/*", "/sys/fs/cgroup/*/*.scope"} {
		left, err := filepath.Glob(pattern)
		b.scene.must(err)
		for _, dir := range left {
			if strings.Contains(dir, string(b.ID)) {
				b.scene.Errorf("cgroup %s is left", dir)
			}
		}
	}
}

// write writes config.json.
func (b *box) write() {
	b.scene.Helper()
	data, err := json.Marshal(b.spec)
	b.scene.must(err)
	b.scene.must(os.WriteFile(filepath.Join(b.bundle.Path, "config.json"), data, 0o600))
}

func (b *box) request() pod.StartRequest {
	return pod.StartRequest{ID: string(b.ID), Bundle: b.bundle, LogPath: b.log, TTY: b.spec.Process.Terminal}
}

// start starts the container and returns it.
func (b *box) start(ctx context.Context) *box {
	b.scene.Helper()
	p, err := b.scene.h.Start(ctx, b.request())
	b.scene.must(err)
	if p.PID <= 0 {
		b.scene.Fatalf("the process has pid %d", p.PID)
	}
	b.Process = &p
	return b
}

// ended waits for the end and returns it.
func (b *box) ended(ctx context.Context) *pod.Exit {
	b.scene.Helper()
	for {
		seen := b.scene.h.Observe(ctx, string(b.ID), b.Process)
		switch {
		case seen.Err != nil:
			b.scene.Fatal(seen.Err)
		case !seen.Alive:
			return seen.Exit
		case ctx.Err() != nil:
			b.scene.Fatalf("container did not end: %v", ctx.Err())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// exit waits for the end and fails unless it was seen.
func (b *box) exit(ctx context.Context) pod.Exit {
	b.scene.Helper()
	e := b.ended(ctx)
	if e == nil {
		b.scene.Fatal("the end was not seen")
	}
	return *e
}

// said waits until the container's log has the text.
func (b *box) said(ctx context.Context, text string) {
	b.scene.Helper()
	for ctx.Err() == nil {
		data, err := os.ReadFile(b.log)
		if err == nil && strings.Contains(string(data), text) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	data, _ := os.ReadFile(b.log)
	b.scene.Fatalf("the log lacks %q: %q", text, data)
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// fails demands an error of that kind whose text has all words.
func (s *scene) fails(err, kind error, words ...string) {
	s.Helper()
	if err == nil {
		s.Fatal("it succeeded")
	}
	if kind != nil && !isKind(err, kind) {
		s.Errorf("error is not of the kind %q: %v", kind, err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			s.Errorf("error lacks %q: %v", w, err)
		}
	}
}

// exec runs a command in the container and returns its output and its exit.
func (b *box) exec(ctx context.Context, argv ...string) (string, pod.Exit) {
	s := b.scene
	s.Helper()
	r, w, err := os.Pipe()
	s.must(err)
	defer r.Close()
	x, err := s.h.Exec(ctx, pod.ExecRequest{Container: b.Container, Command: argv, Stdio: [3]*os.File{nil, w, w}})
	s.must(w.Close())
	s.must(err)
	defer func() {
		if err := x.Close(ctx); err != nil {
			s.Error(err)
		}
	}()
	var out bytes.Buffer
	_, err = io.Copy(&out, r)
	s.must(err)
	exit, err := x.Wait(ctx)
	s.must(err)
	return out.String(), exit
}

// spec is a small container: namespaces, a few mounts, no privileges.
func spec(version, id string, systemd bool, argv []string) *specs.Spec {
	cgroup := "/fairlead-test/" + id
	if systemd {
		cgroup = "system.slice:fairlead:" + id
	}
	return &specs.Spec{
		Version: version,
		Root:    &specs.Root{Path: "rootfs"},
		Process: &specs.Process{
			Args:            argv,
			Cwd:             "/",
			Env:             []string{"PATH=/bin", "FROM=spec"},
			NoNewPrivileges: true,
			Capabilities:    &specs.LinuxCapabilities{},
		},
		Hostname: "box",
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755", "size=64k"}},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"}},
		},
		Linux: &specs.Linux{
			CgroupsPath: cgroup,
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
			},
		},
	}
}
