package image_test

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"fairlead.run/internal/image"
)

// TestPullHangsUp wants no connection left of a pull, whether it succeeded or
// failed: the next one has its own.
func TestPullHangsUp(t *testing.T) {
	reg := newRegistry(t)
	s := openSynced(t, config(t))
	pull(t, s, reg.Push("a:1", simple(t, "x")))
	for range 3 {
		if _, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.Host() + "/nobody/pushed:1"}); err == nil {
			t.Fatal("an image was pulled that is not there")
		}
	}
	// The library keeps them for half a minute, and closing takes a moment.
	const moment = 15 * time.Second
	for end := time.Now().Add(moment); connections(t, reg.Host()) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d ends of connections with the registry are open", connections(t, reg.Host()))
		}
	}
}

// connections counts those that are open with a server on this host, each end by
// itself.
func connections(t *testing.T, address string) (count int) {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	const established = "01"
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		end := fmt.Sprintf(":%04X", number)
		if f[3] == established && (strings.HasSuffix(f[1], end) || strings.HasSuffix(f[2], end)) {
			count++
		}
	}
	return count
}
