package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestScopePath(t *testing.T) {
	for path, want := range map[string]string{
		"system.slice:fairlead:abc":                    "/system.slice/fairlead-abc.scope",
		"-.slice:fairlead:abc":                         "/fairlead-abc.scope",
		"kubepods-burstable-pod1_2.slice:fairlead:abc": "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/fairlead-abc.scope",
		"/kubepods/abc":                                "", "a:b:c": "", "a.slice:b:": "", "a.slice:b": "",
	} {
		got, err := scopePath(path)
		if (err != nil) != (want == "") || got != want {
			t.Errorf("%q is %q (%v), want %q", path, got, err, want)
		}
	}
}

// tree makes folders and files and returns their top.
func hierarchy(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestNewGroup(t *testing.T) {
	v1 := hierarchy(t, map[string]string{"memory/x": "", "cpu,cpuacct/x": "", "unified/cgroup.controllers": ""})
	if err := os.Symlink("cpu,cpuacct", filepath.Join(v1, "cpu")); err != nil {
		t.Fatal(err)
	}
	g, err := New(v1, "/pods/abc")
	want := []string{v1 + "/cpu,cpuacct/pods/abc", v1 + "/memory/pods/abc", v1 + "/unified/pods/abc"}
	if err != nil || !reflect.DeepEqual(g.Dirs, want) {
		t.Errorf("v1: %v %v", g, err)
	}
	v2 := hierarchy(t, map[string]string{"cgroup.controllers": "cpu", "system.slice/x": ""})
	g, err = New(v2, "/system.slice/fairlead-abc.scope")
	if err != nil || !slices.Equal(g.Dirs, []string{v2 + "/system.slice/fairlead-abc.scope"}) {
		t.Errorf("v2 and systemd: %v %v", g, err)
	}
	// Never the top of anything: it would be emptied by Delete.
	for _, path := range []string{"", "/", "..", "/x", "/x/..", "/../x"} {
		if got, err := Path(path, false); err == nil {
			t.Errorf("%q is %v", path, got)
		}
	}
	for path, want := range map[string]string{"/pods/abc": "/pods/abc", "pods//x/../abc/": "/pods/abc"} {
		if got, err := Path(path, false); err != nil || got != want {
			t.Errorf("%q is %q (%v), want %q", path, got, err, want)
		}
	}
	if got, err := Path("system.slice:fairlead:abc", true); err != nil || got != "/system.slice/fairlead-abc.scope" {
		t.Errorf("of systemd: %q (%v)", got, err)
	}
}

func TestPIDs(t *testing.T) {
	root := hierarchy(t, map[string]string{
		"a/pods/x/cgroup.procs":     "12\n0\n5\n",
		"a/pods/x/sub/cgroup.procs": "7\n",
		"b/pods/x/cgroup.procs":     "5\n99\n",
		"b/pods/y/cgroup.procs":     "1\n",
	})
	g, err := New(root, "/pods/x")
	if err != nil {
		t.Fatal(err)
	}
	pids, err := g.PIDs()
	if err != nil || !slices.Equal(pids, []int{5, 7, 12, 99}) {
		t.Errorf("got %v (%v)", pids, err)
	}
}

func TestHybridRemedy(t *testing.T) {
	root := hierarchy(t, map[string]string{"unified/cgroup.controllers": "hugetlb rdma\n"})
	got := HybridRemedy(root)
	for _, want := range []string{
		"hugetlb rdma",
		"mkdir -p " + root + "/hugetlb && mount -t cgroup -o hugetlb cgroup " + root + "/hugetlb; mkdir",
		"mount -t cgroup -o rdma cgroup " + root + "/rdma",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if got := HybridRemedy(hierarchy(t, map[string]string{"unified/cgroup.controllers": "\n"})); got != "" {
		t.Errorf("without controllers: %q", got)
	}
	if got := HybridRemedy(t.TempDir()); got != "" {
		t.Errorf("on a host that is not hybrid: %q", got)
	}
}

// TestLacking wants what is gone in part told from what never was there.
func TestLacking(t *testing.T) {
	all := map[string]string{
		"memory/pods/abc/x": "", "cpu,cpuacct/pods/abc/x": "", "devices/pods/abc/x": "",
		"systemd/x": "", "misc/x": "", "unified/cgroup.controllers": "",
	}
	for _, tt := range []struct {
		gone   []string
		want   []string
		exists bool
	}{
		{nil, nil, true},
		{[]string{"memory"}, []string{"memory"}, true},
		{[]string{"cpu,cpuacct", "devices"}, []string{"cpu,cpuacct", "devices"}, true},
		{[]string{"cpu,cpuacct", "devices", "memory"}, []string{"cpu,cpuacct", "devices", "memory"}, false},
	} {
		root := hierarchy(t, all)
		for _, h := range tt.gone {
			if err := os.RemoveAll(filepath.Join(root, h, "pods")); err != nil {
				t.Fatal(err)
			}
		}
		g, err := New(root, "/pods/abc")
		if err != nil {
			t.Fatal(err)
		}
		if got := g.Lacking(); !slices.Equal(got, tt.want) || g.Exists() != tt.exists {
			t.Errorf("without %v: lacks %v, exists %v", tt.gone, got, g.Exists())
		}
	}
	g, err := New(hierarchy(t, map[string]string{"cgroup.controllers": "", "pods/x": ""}), "/pods/abc")
	if err != nil || g.Lacking() != nil || g.Exists() {
		t.Errorf("on cgroup v2: %v, %v", g, err)
	}
}

// TestNewRefusesWhatIsShared: everything in such a cgroup would be killed.
func TestNewRefusesWhatIsShared(t *testing.T) {
	for _, path := range []string{"", "/", "/pods", "/pods/x/../..", "pods/x"} {
		if g, err := New(t.TempDir(), path); err == nil {
			t.Errorf("%q: %v", path, g.Dirs)
		}
	}
}

// A process that comes after the signal is killed as well.
func TestKillRestOfLatecomers(t *testing.T) {
	root := hierarchy(t, map[string]string{"memory/a/b/cgroup.procs": ""})
	procs := filepath.Join(root, "memory/a/b/cgroup.procs")
	g, err := New(root, "/a/b")
	if err != nil {
		t.Fatal(err)
	}
	late := exec.Command("/bin/sleep", "1000")
	if err := late.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(procs, []byte(strconv.Itoa(late.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() {
		_ = late.Wait() // of what is killed
		gone <- os.WriteFile(procs, nil, 0o600)
	}()
	if err := errors.Join(g.awaitEmpty(t.Context()), <-gone); err != nil {
		t.Error(err)
	}
	if st := late.ProcessState.Sys().(syscall.WaitStatus); st.Signal() != unix.SIGKILL {
		t.Errorf("it ended with %v", st)
	}
}
