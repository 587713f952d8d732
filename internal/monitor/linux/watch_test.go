package linux

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Each end is seen once, when it comes. One from before is not, because its time
// would be wrong, nor is that of who was removed.
func TestWatch(t *testing.T) {
	w, err := NewWatch()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	seen := make(chan string, 10)
	begun := time.Now()
	wg.Go(func() {
		w.Run(ctx, func(key string, at time.Time) {
			if at.Before(begun) || at.After(time.Now()) {
				t.Errorf("%s ended at %s", key, at)
			}
			seen <- key
		})
	})
	start := func(key string, early bool) (end func()) {
		t.Helper()
		c := exec.Command("/bin/sh", "-c", "read x")
		in, err := c.StdinPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = in.Close()
			_ = c.Wait()
		})
		fd, err := unix.PidfdOpen(c.Process.Pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		if early {
			_ = in.Close()
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if n, err := unix.Poll(poll, 60000); n != 1 {
				t.Fatal(err)
			}
		}
		if err := w.Add(key, fd); err != nil {
			t.Fatal(err)
		}
		return func() { _ = in.Close() }
	}
	want := func(key string) {
		t.Helper()
		select {
		case got := <-seen:
			if got != key {
				t.Errorf("%s ended, not %s", got, key)
			}
		case <-time.After(time.Minute):
			t.Fatalf("the end of %s was not seen", key)
		}
	}
	start("early", true)
	removed := start("removed", false)
	w.Remove("removed")
	w.Remove("nobody")
	removed()
	for i := range 3 {
		key := fmt.Sprint(i)
		end := start(key, false)
		end()
		want(key)
	}
	start("replaced", false)
	end := start("replaced", false)
	end()
	want("replaced")
	if len(seen) > 0 {
		t.Errorf("%s ended, too", <-seen)
	}
}
