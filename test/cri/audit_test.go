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

// audit is what exists on the host and could be left behind: mounts, network
// links, cgroups, nft tables and processes of the programs under test.
type audit map[string]bool

func look(t *testing.T) audit {
	t.Helper()
	a := audit{}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		a["mount "+strings.Fields(line)[4]] = true
	}
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		a["link "+l.Name] = true
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			a["cgroup "+path] = true
		}
		return nil
	})
	if tables, err := exec.Command("nft", "list", "tables").Output(); err == nil {
		for line := range strings.Lines(string(tables)) {
			a["nft "+strings.TrimSpace(line)] = true
		}
	}
	for _, p := range ours(t) {
		a["process "+p] = true
	}
	return a
}

// ours are processes that run a program under test.
func ours(t *testing.T) []string {
	t.Helper()
	var out []string
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		exe, err := os.Readlink(p + "/exe")
		if err != nil || !strings.HasPrefix(exe, bin) {
			continue
		}
		args, _ := os.ReadFile(p + "/cmdline")
		out = append(out, filepath.Base(p)+" "+string(bytes.ReplaceAll(bytes.TrimRight(args, "\x00"), []byte{0}, []byte{' '})))
	}
	return out
}

// since lists what is there now and was not there before. What the kernel
// takes down by itself gets a moment for it.
func (a audit) since(t *testing.T) []string {
	t.Helper()
	var left []string
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		left = nil
		for thing := range look(t) {
			if !a[thing] {
				left = append(left, thing)
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			slices.Sort(left)
			return left
		}
	}
}
