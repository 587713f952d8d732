package linux

import (
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMark(t *testing.T) {
	const number = 1<<52 + 7
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_RTTIME, &unix.Rlimit{Cur: 3, Max: number}, nil); err != nil {
		t.Skipf("this process may not limit others: %v", err)
	}
	if got := Mark(cmd.Process.Pid); got != number {
		t.Errorf("mark %d, want %d", got, number)
	}
	for _, text := range []string{"", "Max realtime timeout ", "Max realtime timeout      5", "Max realtime timeout      unlimited            unlimited            us \n"} {
		if got := parseMark(text); got != 0 {
			t.Errorf("%q: mark %d", text, got)
		}
	}
}
