package logs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// settle is the shortest time between two looks at a busy file, so that a
// container that prints a lot is read in blocks.
const settle = 10 * time.Millisecond

// recheck is how long to trust in being woken: file systems exist that send no
// events, and a folder may be replaced. Who is never woken looks more often.
const (
	recheck = 5 * time.Second
	unheard = 200 * time.Millisecond
)

// watch waits for changes in the log's folder.
type watch struct {
	file *os.File      // nil if nobody wakes it
	wake chan struct{} // holds one
	done chan struct{}
}

// newWatch starts to watch. Where the machine has no watches left it does without.
func newWatch(path string) *watch {
	w, err := listen(path)
	if err != nil {
		return &watch{}
	}
	return w
}

// listen has a watch woken. The folder is made by the runtime; until it exists
// the watch looks again from time to time.
func listen(path string) (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	w := &watch{file: os.NewFile(uintptr(fd), "inotify"), wake: make(chan struct{}, 1), done: make(chan struct{})}
	const events = unix.IN_MODIFY | unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_CLOSE_WRITE
	if _, err := unix.InotifyAddWatch(fd, filepath.Dir(path), events); err != nil && !errors.Is(err, unix.ENOENT) {
		_ = w.file.Close()
		return nil, err
	}
	go w.run()
	return w, nil
}

// run turns events into wake-ups until close.
func (w *watch) run() {
	defer close(w.done)
	buf := make([]byte, 4096)
	for {
		if _, err := w.file.Read(buf); err != nil {
			return
		}
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

func (w *watch) close() {
	if w.file == nil {
		return
	}
	_ = w.file.Close()
	<-w.done
}

// wait blocks until something may have changed, or the log has ended.
func (w *watch) wait(ctx context.Context, ended <-chan struct{}) error {
	often := recheck
	if w.file == nil {
		often = unheard
	}
	timer := time.NewTimer(often)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-ended:
		return nil
	case <-timer.C:
		return nil
	case <-w.wake:
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-ended:
	case <-time.After(settle):
	}
	return nil
}
