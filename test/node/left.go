package node

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

// Left lists what is on the host because of this node and has to be gone when
// its pods and its daemon are: mounts, links, nft tables, cgroups, processes,
// and files in the state directory. Other tests run at the same time, so only
// what bears this node's names counts.
func (n *Node) Left() []string {
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
	if tables, err := exec.Command("nft", "list", "tables").Output(); err == nil && strings.Contains(string(tables), n.Bridge+"\n") {
		add("nft table", n.Bridge)
	}
	for _, dir := range []string{"pods", "containers", "monitor/proc"} {
		entries, _ := os.ReadDir(filepath.Join(n.State, dir))
		for _, e := range entries {
			add("state", filepath.Join(dir, e.Name()))
		}
	}
	entries, _ := os.ReadDir(filepath.Join(n.Root, "containers"))
	for _, e := range entries {
		add("root", filepath.Join("containers", e.Name()))
	}
	slices.Sort(out)
	return out
}

// LeftAfterAll is Left once the kernel had a moment to take down what it takes
// down by itself.
func (n *Node) LeftAfterAll() (left []string) {
	for end := time.Now().Add(15 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if left = n.Left(); len(left) == 0 || time.Now().After(end) {
			return left
		}
	}
}

func (n *Node) mounts() (out []string) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		n.T.Error(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if path := strings.Fields(line)[4]; strings.HasPrefix(path, n.Dir+"/") {
			out = append(out, path)
		}
	}
	return out
}

// links are the node's bridge and what is plugged into it.
func (n *Node) links() (out []string) {
	all, err := net.Interfaces()
	if err != nil {
		n.T.Error(err)
	}
	for _, l := range all {
		master, _ := os.Readlink("/sys/class/net/" + l.Name + "/master")
		if l.Name == n.Bridge || filepath.Base(master) == n.Bridge {
			out = append(out, l.Name)
		}
	}
	return out
}

// cgroups are those with the id of one of the node's pods or containers.
func (n *Node) cgroups() (out []string) {
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		if n.ids.in(d.Name()) {
			out = append(out, path)
		}
		return nil
	})
	return out
}

// processes are the programs under test that work on the node's directories.
func (n *Node) processes() (out []string) {
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		n.T.Error(err)
	}
	for _, p := range procs {
		args, _ := os.ReadFile(p + "/cmdline")
		if bytes.Contains(args, []byte(n.Dir)) {
			out = append(out, filepath.Base(p)+" "+string(bytes.ReplaceAll(bytes.TrimRight(args, "\x00"), []byte{0}, []byte{' '})))
		}
	}
	return out
}

// WantNothingLeft fails the test over anything that is left.
func (n *Node) WantNothingLeft(t *testing.T) {
	t.Helper()
	if left := n.LeftAfterAll(); len(left) > 0 {
		t.Errorf("left on the host:\n%s", strings.Join(left, "\n"))
	}
}

// OfPods is what is left of pods while the daemon still runs.
func (n *Node) OfPods() (out []string) {
	for _, what := range n.Left() {
		if kind, _, _ := strings.Cut(what, " "); kind == "state" || kind == "root" || kind == "cgroup" || kind == "mount" {
			out = append(out, what)
		}
	}
	return out
}
