package node

import (
	"bytes"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	add("nft element", n.elements()...)
	add("cni address", n.reserved()...)
	for _, dir := range []string{"pods", "containers", "monitor/proc", "runtimes/*", "trials"} {
		add("state", below(n.State, dir)...)
	}
	for _, dir := range []string{"pods", "containers", "checkpoints", "network/attachments", "network/cni-cache/results", "content/ingest", "content/incoming"} {
		add("root", below(n.Root, dir)...)
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

// OfPods is what is left of pods while the daemon still runs. A daemon that was
// just started may still be trying its handlers.
func (n *Node) OfPods() (out []string) {
	for _, what := range n.Left() {
		switch kind, _, _ := strings.Cut(what, " "); {
		case kind == "process", what == "link "+n.Bridge, what == "nft table "+n.Bridge:
		case strings.Contains(what, "trial"):
		default:
			out = append(out, what)
		}
	}
	return out
}

// OfImages is what is left of images once all are removed.
func (n *Node) OfImages() []string {
	return append(below(n.Root, "content/blobs/sha256"), below(n.Root, "snapshots/snapshots")...)
}

// below lists the entries of a folder, or of all that a pattern fits, from top.
func below(top, pattern string) (out []string) {
	found, _ := filepath.Glob(filepath.Join(top, pattern, "*"))
	for _, path := range found {
		out = append(out, strings.TrimPrefix(path, top+"/"))
	}
	return out
}

// elements are the lines of nftables that name one of the node's pods or its
// conflist, and the elements in the maps of its own table. The conflist is in
// rules of pods, too, whose id was never told.
func (n *Node) elements() (out []string) {
	rules, err := exec.Command("nft", "list", "ruleset").Output()
	if err != nil {
		return nil
	}
	own := false
	// Behind the name no more of a longer one follows, as the comments of rules
	// have it in quotes.
	named := regexp.MustCompile(regexp.QuoteMeta(n.conflist()) + `\b`)
	for line := range strings.Lines(string(rules)) {
		if strings.HasPrefix(line, "table ") {
			own = strings.Contains(line, n.Bridge+" ")
		}
		if n.ids.in(line) || named.MatchString(line) || own && strings.Contains(line, "elements =") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// reserved are the addresses that the plugin host-local has handed out.
func (n *Node) reserved() (out []string) {
	for _, name := range below(n.Dir, "ipam/*") {
		if net.ParseIP(filepath.Base(name)) != nil {
			out = append(out, name)
		}
	}
	return out
}

func (n *Node) mounts() (out []string) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		n.T.Error(err)
	}
	for line := range strings.Lines(string(mounts)) {
		path := strings.Fields(line)[4]
		if slices.ContainsFunc(n.folders(), func(top string) bool { return strings.HasPrefix(path, top+"/") }) {
			out = append(out, path)
		}
	}
	return out
}

// folders are the node's, which a test may have put on a file system of their own.
func (n *Node) folders() []string { return []string{n.Dir, n.State, n.Root, n.Logs} }

// links are the node's bridge and what is plugged into it.
func (n *Node) links() (out []string) {
	all, err := net.Interfaces()
	if err != nil {
		n.T.Error(err)
	}
	for _, l := range all {
		master, _ := os.Readlink("/sys/class/net/" + l.Name + "/master")
		if m := filepath.Base(master); l.Name == n.Bridge || m == n.Bridge || m == n.CNIBridge() {
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
		if slices.ContainsFunc(n.folders(), func(top string) bool { return bytes.Contains(args, []byte(top)) }) {
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
