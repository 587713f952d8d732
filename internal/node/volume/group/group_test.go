package group

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

func put(t *testing.T, path string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// owner is the group and the mode of a file.
func owner(t *testing.T, path string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %o", st.Gid, st.Mode&0o7777)
}

// What is given to a group is what is in the volume: no link leads out of it, and
// nothing that is mounted in it belongs to it.
func TestSetGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount and to change owners")
	}
	outside, dir := t.TempDir(), t.TempDir()
	put(t, filepath.Join(outside, "keep"))
	put(t, filepath.Join(dir, "sub", "f"))
	put(t, filepath.Join(dir, "suid"))
	if err := errors.Join(
		os.Chmod(filepath.Join(dir, "suid"), 0o755|os.ModeSetuid),
		os.Symlink(filepath.Join(outside, "keep"), filepath.Join(dir, "link")),
		os.Symlink(outside, filepath.Join(dir, "links")),
		os.Mkdir(filepath.Join(dir, "mnt"), 0o755),
		unix.Mount(outside, filepath.Join(dir, "mnt"), "", unix.MS_BIND, ""),
	); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(filepath.Join(dir, "mnt"), 0) }()
	before := owner(t, filepath.Join(outside, "keep"))
	c := Change{Group: 2000}
	give := func(ctx context.Context) error {
		refused, err := c.Give(ctx, dir)
		return errors.Join(err, refused.First)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := give(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("it does not end with its context: %v", err)
	}
	if err := give(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{".": "2000 2775", "sub": "2000 2775", "sub/f": "2000 660", "suid": "2000 4775", "link": "2000 777", "links": "2000 777"} {
		if got := owner(t, filepath.Join(dir, name)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if got := owner(t, filepath.Join(outside, "keep")); got != before {
		t.Errorf("a file outside is now %s", got)
	}
	// With OnRootMismatch what is below is not looked at when the folder is right.
	c.OnMismatch = true
	put(t, filepath.Join(dir, "new"))
	if err := errors.Join(os.Chown(filepath.Join(dir, "new"), 0, 0), give(t.Context())); err != nil {
		t.Fatal(err)
	}
	if got := owner(t, filepath.Join(dir, "new")); got != "0 600" {
		t.Errorf("OnRootMismatch: %s", got)
	}
	c.OnMismatch = false
	if err := give(t.Context()); err != nil || owner(t, filepath.Join(dir, "new")) != "2000 660" {
		t.Errorf("Always: %v", err)
	}
}

// TestGroupTakesItsTime bounds how long nothing may happen, and not how long it takes; and tells
// how far it is.
func TestGroupTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, alive, cancel := whileAlive(t.Context(), 2*time.Minute)
		defer cancel()
		began := time.Now()
		var told []time.Duration
		c := change{alive: alive, due: began.Add(firstProgress), tell: func(int) { told = append(told, time.Since(began)) }, shown: &atomic.Int64{}}
		for time.Since(began) < 200*time.Second {
			c.step(time.Now())
			time.Sleep(500 * time.Millisecond)
		}
		if ctx.Err() != nil || c.files != 400 || !slices.Equal(told, []time.Duration{30 * time.Second, 90 * time.Second, 150 * time.Second}) {
			t.Errorf("%v, %d files, told after %v", context.Cause(ctx), c.files, told)
		}
		time.Sleep(3 * time.Minute)
		if err := context.Cause(ctx); !errors.Is(err, errStuck) {
			t.Errorf("without progress: %v", err)
		}
	})
}

// TestGroupOfAFolderThatIsShared waits for another pod's group, for as long as that gets on, and
// tells how far it is.
func TestGroupOfAFolderThatIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const dir = "/shared"
		first := change{alive: func() {}}
		done, err := first.turn(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		// waiter is another pod's attempt.
		waiter := func(told *[]int) chan error {
			ctx, alive, cancel := whileAlive(t.Context(), 2*time.Minute)
			c := change{alive: alive, due: time.Now().Add(firstProgress), tell: func(files int) { *told = append(*told, files) }}
			out := make(chan error, 1)
			go func() {
				defer cancel()
				done, err := c.turn(ctx, dir)
				if err == nil {
					done()
				}
				out <- err
			}()
			return out
		}
		var told []int
		second := waiter(&told)
		for range 400 { // 200 s
			first.step(time.Now())
			time.Sleep(500 * time.Millisecond)
		}
		synctest.Wait()
		select {
		case err := <-second:
			t.Fatalf("it did not wait: %v", err)
		default:
		}
		if len(told) != 3 || told[0] < 59 || told[0] > 61 || told[2] < 299 || told[2] > 301 {
			t.Errorf("told of %v files, want about 60, 180 and 300", told)
		}
		third := waiter(&[]int{})
		done()
		if err := errors.Join(<-second, <-third); err != nil {
			t.Errorf("after it: %v", err)
		}
		// One that does not get on is waited for as long as for a file system.
		if done, err = first.turn(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		defer done()
		began := time.Now()
		if err := <-waiter(&[]int{}); !errors.Is(err, errStuck) || time.Since(began) > 3*time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}
