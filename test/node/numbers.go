package node

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Eventually waits until ok.
func Eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// Numbers prints 1, 2, 3, ... as fast as it may, and stops at a file.
const Numbers = `i=0; while [ ! -e /stop ]; do i=$((i+1)); echo $i; [ $((i%50)) = 0 ] && usleep 5000; done; echo end`

// StopNumbers ends the script. The exec may die with the container that it ends.
func (c *Container) StopNumbers() {
	c.Sandbox.Node.T.Helper()
	_, err := c.Sandbox.Node.Runtime.ExecSync(c.Sandbox.Node.Ctx(), &runtimeapi.ExecSyncRequest{ContainerId: c.ID, Cmd: []string{"touch", "/stop"}})
	if err != nil {
		c.Sandbox.Node.T.Fatal(err)
	}
}

// CheckNumbers fails if a line is lost, doubled or cut.
func CheckNumbers(t *testing.T, log string) int {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(log, "\n"), "\n")
	for i, line := range lines[:len(lines)-1] {
		if line != fmt.Sprint(i+1) {
			t.Fatalf("line %d is %q", i+1, line)
		}
	}
	if lines[len(lines)-1] != "end" {
		t.Fatalf("the last line is %q", lines[len(lines)-1])
	}
	return len(lines) - 1
}

// Grown waits until each has printed more than it had.
func Grown(t *testing.T, ctrs []*Container) {
	t.Helper()
	for _, c := range ctrs {
		size := func() int64 {
			st, err := os.Stat(c.LogPath())
			if err != nil {
				t.Fatal(err)
			}
			return st.Size()
		}
		before := size()
		Eventually(t, "more output", func() bool { return size() > before+1000 })
	}
}
