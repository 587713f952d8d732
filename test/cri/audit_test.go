package cri

import (
	"bytes"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// left lists what is on the host because of this node and has to be gone when
// its pods and its daemon are: mounts, links, nft tables, cgroups, processes,
// and files in the state directory. Other tests run at the same time, so only
// what bears this node's names counts.
func (n *node) left() []string {
	var out []string
	add := func(kind string, names ...string) {
		for _, name := range names {
			out = append(out, kind+" "+name)
		}
	}
	add("mount", n.mounts()...)
	add("link", n.links()...)
	add("cgroup", n.cgroups()...)
	add("process", n.processes()...)
	if tables, err := exec.Command("nft", "list", "tables").Output(); err == nil && strings.Contains(string(tables), n.bridge+"\n") {
		add("nft table", n.bridge)
	}
	for _, dir := range []string{"pods", "containers", "monitor/proc"} {
		entries, _ := os.ReadDir(filepath.Join(n.state, dir))
		for _, e := range entries {
			add("state", filepath.Join(dir, e.Name()))
		}
	}
	entries, _ := os.ReadDir(filepath.Join(n.root, "containers"))
	for _, e := range entries {
		add("root", filepath.Join("containers", e.Name()))
	}
	slices.Sort(out)
	return out
}

// leftAfterAll is left once the kernel had a moment to take down what it takes
// down by itself.
func (n *node) leftAfterAll() (left []string) {
	for end := time.Now().Add(15 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if left = n.left(); len(left) == 0 || time.Now().After(end) {
			return left
		}
	}
}

func (n *node) mounts() (out []string) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		n.t.Error(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if path := strings.Fields(line)[4]; strings.HasPrefix(path, n.dir+"/") {
			out = append(out, path)
		}
	}
	return out
}

// links are the node's bridge and what is plugged into it.
func (n *node) links() (out []string) {
	all, err := net.Interfaces()
	if err != nil {
		n.t.Error(err)
	}
	for _, l := range all {
		master, _ := os.Readlink("/sys/class/net/" + l.Name + "/master")
		if l.Name == n.bridge || filepath.Base(master) == n.bridge {
			out = append(out, l.Name)
		}
	}
	return out
}

// cgroups are those with the id of one of the node's pods or containers.
func (n *node) cgroups() (out []string) {
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		for id := range n.ids {
			if strings.Contains(d.Name(), id) {
				out = append(out, path)
			}
		}
		return nil
	})
	return out
}

// processes are the programs under test that work on the node's directories.
func (n *node) processes() (out []string) {
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		n.t.Error(err)
	}
	for _, p := range procs {
		args, _ := os.ReadFile(p + "/cmdline")
		if bytes.Contains(args, []byte(n.dir)) {
			out = append(out, filepath.Base(p)+" "+string(bytes.ReplaceAll(bytes.TrimRight(args, "\x00"), []byte{0}, []byte{' '})))
		}
	}
	return out
}

// wantNothingLeft fails the test over anything that is left.
func (n *node) wantNothingLeft(t *testing.T) {
	t.Helper()
	if left := n.leftAfterAll(); len(left) > 0 {
		t.Errorf("left on the host:\n%s", strings.Join(left, "\n"))
	}
}
