package linux

import (
	"fmt"
	"os/exec"
	"testing"
	"time"
)

func TestOldestWith(t *testing.T) {
	mark := fmt.Sprintf("FAIRLEAD_TEST_MARK=%d", time.Now().UnixNano())
	if s, ok := OldestWith(mark); ok {
		t.Fatalf("found %+v before there was one", s)
	}
	// The shell passes its environment on; it is the older one.
	cmd := exec.Command("/bin/sh", "-c", "sleep 1000 & echo; read x; kill $!")
	cmd.Env = []string{"PATH=/usr/bin:/bin", mark, "X" + mark}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if s, ok := OldestWith(mark); !ok || s.PID != cmd.Process.Pid {
		t.Errorf("found %+v, not process %d", s, cmd.Process.Pid)
	}
	if s, ok := OldestWith(mark[:len(mark)-1]); ok {
		t.Errorf("a part of the entry found %+v", s)
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
