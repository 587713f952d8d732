package runtimetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// limit reads a limit of the container: the file of cgroup v1 or that of v2.
func (b *box) limit(controller, v1, v2 string) string {
	b.scene.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", b.Process.Inside()))
	b.scene.must(err)
	for line := range strings.Lines(string(data)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		path := ""
		switch {
		case f[1] == controller:
			path = filepath.Join("/sys/fs/cgroup", controller, f[2], v1)
		case f[0] == "0":
			path = filepath.Join("/sys/fs/cgroup", f[2], v2)
		}
		if value, err := os.ReadFile(path); path != "" && err == nil {
			return strings.TrimSpace(string(value))
		}
	}
	b.scene.Fatalf("no %s limit of the container is found in %s", controller, data)
	return ""
}

// limited puts limits into the bundle, as the core does before it asks for an
// update. Swap counts within the limit of memory.
func (b *box) limited(memory int64) {
	b.scene.Helper()
	quota, period, shares, pids := int64(50000), uint64(100000), uint64(512), int64(77)
	b.spec.Linux.Resources = &specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: &memory, Swap: &memory},
		CPU:    &specs.LinuxCPU{Quota: &quota, Period: &period, Shares: &shares},
		Pids:   &specs.LinuxPids{Limit: &pids},
	}
	b.write()
}

func updates(ctx context.Context, s *scene) {
	b := s.box("/bin/sleep", "1000").start(ctx)
	const megabyte = 1 << 20
	// Up and down: memory must never be above memory with swap in between.
	for _, memory := range []int64{64 * megabyte, 96 * megabyte, 32 * megabyte} {
		b.limited(memory)
		s.must(s.h.Update(ctx, string(b.ID), b.bundle))
		if v := b.limit("memory", "memory.limit_in_bytes", "memory.max"); v != fmt.Sprint(memory) {
			s.Errorf("memory limit is %s, want %d", v, memory)
		}
	}
	if v := b.limit("cpu", "cpu.cfs_quota_us", "cpu.max"); v != "50000" && v != "50000 100000" {
		s.Errorf("CPU quota is %s", v)
	}
	if v := b.limit("pids", "pids.max", "pids.max"); v != "77" {
		s.Errorf("limit of processes is %s", v)
	}
	files, err := filepath.Glob(filepath.Join(b.bundle.Path, "resources-*"))
	s.must(err)
	if len(files) > 0 {
		s.Errorf("left in the bundle: %v", files)
	}
}

func updateUnknown(ctx context.Context, s *scene) {
	b := s.box("/bin/true")
	b.write()
	s.fails(s.h.Update(ctx, string(b.ID), b.bundle), errdefs.ErrNotFound, string(b.ID))
}

// crowd is a container whose first process is not alone in its PID namespace:
// its children live on when it ends.
func (s *scene) crowd(ctx context.Context) *box {
	b := s.script("for i in 1 2 3 4 5; do setsid sleep 3000 & done; echo ready; exec sleep 1000")
	var kept []specs.LinuxNamespace
	for _, n := range b.spec.Linux.Namespaces {
		if n.Type != specs.PIDNamespace {
			kept = append(kept, n)
		}
	}
	b.spec.Linux.Namespaces = kept
	b.write()
	b.start(ctx)
	b.said(ctx, "ready")
	return b
}

// procs lists the processes of the container's cgroup.
func (b *box) procs() string {
	b.scene.Helper()
	var all []string
	for _, pattern := range []string{"/sys/fs/cgroup/fairlead-test/", "/sys/fs/cgroup/*/fairlead-test/", "/sys/fs/cgroup/*/fairlead-"} {
		files, err := filepath.Glob(pattern + string(b.ID) + "*/cgroup.procs")
		b.scene.must(err)
		for _, f := range files {
			data, err := os.ReadFile(f)
			if err == nil {
				all = append(all, strings.Fields(string(data))...)
			}
		}
	}
	return strings.Join(all, " ")
}

func killAll(ctx context.Context, s *scene) {
	b := s.crowd(ctx)
	if len(strings.Fields(b.procs())) < 6 {
		s.Fatalf("the container has only the processes %s", b.procs())
	}
	s.must(s.h.Kill(ctx, b.Container, "SIGKILL", true))
	if e := b.exit(ctx); e.Code != 137 {
		s.Errorf("exit is %+v", e)
	}
	for b.procs() != "" {
		if ctx.Err() != nil {
			s.Fatalf("processes %s live on", b.procs())
		}
	}
}

func deleteKills(ctx context.Context, s *scene) {
	b := s.crowd(ctx)
	s.must(s.h.Kill(ctx, b.Container, "SIGKILL", false))
	b.exit(ctx)
	if b.procs() == "" && !s.s.Tidy {
		s.Fatal("nothing is left to kill")
	}
	s.must(s.h.Delete(ctx, string(b.ID)))
	if left := b.procs(); left != "" {
		s.Errorf("processes %s live on", left)
	}
	b.noCgroup()
	// A live first process is no obstacle: a pod's own process has no Kill.
	b = s.box("/bin/sleep", "1000").start(ctx)
	s.must(s.h.Delete(ctx, string(b.ID)))
	if e := b.exit(ctx); e.Code != 137 {
		s.Errorf("exit is %+v", e)
	}
	b.noCgroup()
}

func deleteBroken(ctx context.Context, s *scene) {
	for _, text := range []string{"", "{\"linux\": 5}", "\x00"} {
		b := s.box("/bin/sleep", "1000").start(ctx)
		s.must(os.WriteFile(filepath.Join(b.bundle.Path, "config.json"), []byte(text), 0o600))
		s.must(s.h.Kill(ctx, b.Container, "SIGKILL", true))
		if e := b.exit(ctx); e.Code != 137 {
			s.Errorf("exit is %+v", e)
		}
		s.must(s.h.Delete(ctx, string(b.ID)))
		b.noCgroup()
	}
	b := s.box("/bin/sleep", "1000").start(ctx)
	s.must(os.Remove(filepath.Join(b.bundle.Path, "config.json")))
	s.must(s.h.Delete(ctx, string(b.ID)))
	b.noCgroup()
}

func deleteTwice(ctx context.Context, s *scene) {
	b := s.script("exit 2").start(ctx)
	b.exit(ctx)
	s.must(s.h.Delete(ctx, string(b.ID)))
	s.must(s.h.Delete(ctx, string(b.ID)))
	// Its end is known for as long as nobody forgets it.
	if e := b.exit(ctx); e.Code != 2 {
		s.Errorf("after Delete exit is %+v", e)
	}
}

func deleteUnknown(ctx context.Context, s *scene) {
	s.must(s.h.Delete(ctx, string(pod.NewContainerID())))
	s.must(s.h.Delete(ctx, string(s.box("/bin/true").ID)))
}
