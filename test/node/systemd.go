package node

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead.run/test/hostprep"
)

// UnderSystemd runs other tests of this binary where systemd is process 1 and
// makes the cgroups of their nodes: on this host's kernel, in namespaces of their
// own. pattern says which, as for -run. Where systemd is process 1 already, they
// run by themselves.
func UnderSystemd(t *testing.T, pattern string) {
	t.Helper()
	if hostprep.BySystemd() {
		t.Skip("systemd is process 1 here: all tests are under it")
	}
	if lack := hostprep.LacksForSystemd(); lack != "" {
		t.Skip("needs " + lack)
	}
	ctx := t.Context()
	if end, ok := t.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-30*time.Second))
		defer cancel()
	}
	before := ownCgroups(t)
	dir, err := os.MkdirTemp("", "fairlead-systemd")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	err = hostprep.UnderSystemd(ctx, dir, "-test.v", "-test.run="+pattern)
	output, _ := os.ReadFile(filepath.Join(dir, "output"))
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "systemd.log"))
		t.Fatalf("%v\n%s\nsystemd:\n%s", err, output, tail(string(log), 8000))
	}
	if !strings.Contains(string(output), "--- PASS") {
		t.Errorf("no test has passed:\n%s", output)
	}
	for line := range strings.Lines(string(output)) {
		if strings.Contains(line, "--- ") {
			t.Log(strings.TrimRight(line, "\n"))
		}
	}
	if after := ownCgroups(t); before != after {
		t.Errorf("the cgroups were\n%sand are\n%s", before, after)
	}
}

func ownCgroups(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
