package oom

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	onNode  = "6,10,1,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/user.slice,task=stress,pid=42,uid=0"
	inGroup = "6,11,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/kubepods/podx,task_memcg=/kubepods/podx/c,task=a,pid=7,b,pid=43,uid=0"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name, line string
		want       Kill
		ok         bool
	}{
		{"on the node", onNode, Kill{System: true, Cgroup: "/user.slice", Process: "stress", Pid: 42}, true},
		{"in a cgroup, by an odd name", inGroup, Kill{Limit: "/kubepods/podx", Cgroup: "/kubepods/podx/c", Process: "a,pid=7,b", Pid: 43}, true},
		{"written by a program", "12" + strings.TrimPrefix(onNode, "6"), Kill{}, false},
		{"something else", "6,10,1,-;eth0: link up", Kill{}, false},
		{"a continuation", " SUBSYSTEM=net", Kill{}, false},
		{"cut off", strings.Split(onNode, ",pid=")[0], Kill{}, false},
		{"no number", strings.Replace(onNode, "42", "x", 1), Kill{}, false},
	} {
		if got, ok := Parse(tt.line); got != tt.want || ok != tt.ok {
			t.Errorf("%s: %+v, %t", tt.name, got, ok)
		}
	}
	if k, _ := Parse(onNode); k.Message() != "System OOM encountered, victim process: stress, pid: 42" {
		t.Error(k.Message())
	}
}

func TestWatch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kmsg")
	if err := unix.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	kills, ended := make(chan Kill, 2), make(chan error, 1)
	go func() { ended <- Watch(ctx, file, func(k Kill) { kills <- k }) }()
	if _, err := log.WriteString("6,9,1,-;booting\n" + onNode + "\n" + inGroup + "\n"); err != nil {
		t.Fatal(err)
	}
	if a, b := <-kills, <-kills; a.Pid != 42 || b.Pid != 43 {
		t.Errorf("%+v, %+v", a, b)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := Watch(t.Context(), filepath.Join(t.TempDir(), "none"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no log: %v", err)
	}
}

// The kernel kills a process of the test's own.
func TestTheKernel(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make a cgroup")
	}
	if f, err := os.Open(Log); err != nil {
		t.Skipf("needs the kernel's log: %v", err)
	} else {
		_ = f.Close()
	}
	name := fmt.Sprintf("fairlead-test-oom-%d", os.Getpid())
	group, limit := filepath.Join("/sys/fs/cgroup/memory", name), "memory.limit_in_bytes"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		group, limit = filepath.Join("/sys/fs/cgroup", name), "memory.max"
	}
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for end := time.Now().Add(time.Minute); os.Remove(group) != nil; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("%s is left", group)
				return
			}
		}
	})
	if err := os.WriteFile(filepath.Join(group, limit), []byte("8388608"), 0); err != nil {
		t.Skipf("needs a memory controller: %v", err)
	}
	for file, none := range map[string]string{"memory.swap.max": "0", "memory.memsw.limit_in_bytes": "8388608"} {
		if err := os.WriteFile(filepath.Join(group, file), []byte(none), 0); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	kills, ended := make(chan Kill, 100), make(chan error, 1)
	begun := time.Now()
	go func() { ended <- Watch(ctx, Log, func(k Kill) { kills <- k }) }()
	for {
		// A kill before the log was open is not told of; there is another one.
		victim := exec.CommandContext(ctx, "sh", "-c", `echo 0 >"$0/cgroup.procs" && exec tail /dev/zero`, group)
		if err := victim.Run(); err == nil {
			t.Fatal("a process got more memory than its limit")
		}
		select {
		case k := <-kills:
			if k.Limit != "/"+name {
				continue // another one's
			}
			if k.System || k.Cgroup != "/"+name || k.Process != "tail" || k.Pid <= 0 {
				t.Errorf("told %+v", k)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			return
		case err := <-ended:
			t.Fatalf("nothing was told in %s: %v", time.Since(begun), err)
		case <-time.After(time.Second):
		}
	}
}
