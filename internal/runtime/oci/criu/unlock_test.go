package criu

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// inNamespace calls f in a new network namespace, which it names by a path.
func inNamespace(t *testing.T, f func(path string)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes a network namespace")
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the namespace
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			f(fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid()))
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Skipf("needs a network namespace: %v", err)
	}
}

func TestUnlock(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("needs nft (Debian package nftables)")
	}
	inNamespace(t, func(path string) {
		nft := func(args ...string) string {
			out, err := exec.Command("nft", args...).CombinedOutput()
			if err != nil {
				t.Errorf("nft %q: %v: %s", args, err, out)
			}
			return string(out)
		}
		if err := Unlock(path); err != nil {
			t.Errorf("where nothing is blocked: %v", err)
		}
		for _, line := range []string{
			"add table inet CRIU-7", "add table inet mine",
			"add table ip filter", "add chain ip filter CRIU", "add rule ip filter CRIU drop",
			"add chain ip filter INPUT { type filter hook input priority 0 ; }",
			"add rule ip filter INPUT counter jump CRIU", "add rule ip filter INPUT tcp dport 5 accept",
		} {
			nft(strings.Fields(line)...)
		}
		for range 2 {
			if err := Unlock(path); err != nil {
				t.Error(err)
			}
		}
		left := nft("list", "ruleset")
		if strings.Contains(left, "CRIU") || !strings.Contains(left, "dport 5") || !strings.Contains(left, "table inet mine") {
			t.Errorf("left:\n%s", left)
		}
	})
	if err := Unlock("/no/such/namespace"); err == nil {
		t.Error("no namespace was unblocked")
	}
}
