package cgroup

import (
	"errors"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// watches tells which of many memory.events files have changed. Each is
// announced once: that is all that is asked of it, and a container that reaches
// its limit all the time costs no more than another. What is announced waits
// in the kernel until somebody wants to know; nothing runs meanwhile.
type watches struct {
	fd  int
	err error
	ids map[int]string // by number of the watch
	nos map[string]int
}

func newWatches() *watches {
	w := &watches{ids: map[int]string{}, nos: map[string]int{}}
	w.fd, w.err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	return w
}

// add watches the count of a cgroup.
func (w *watches) add(dir, id string) error {
	if w.err != nil {
		return w.err
	}
	w.remove(id)
	no, err := unix.InotifyAddWatch(w.fd, filepath.Join(dir, eventsFile), unix.IN_MODIFY|unix.IN_ONESHOT)
	if err != nil {
		return err
	}
	w.ids[no], w.nos[id] = id, no
	return nil
}

// remove ends a watch. One that the kernel has ended is fine.
func (w *watches) remove(id string) {
	no, ok := w.nos[id]
	if !ok {
		return
	}
	_, _ = unix.InotifyRmWatch(w.fd, uint32(no))
	delete(w.nos, id)
	delete(w.ids, no)
}

// drain takes what was announced. all says that announcements were lost.
func (w *watches) drain() (ids map[string]bool, all bool) {
	ids = map[string]bool{}
	if w.err != nil {
		return ids, true
	}
	buf := make([]byte, 16<<10)
	for {
		n, err := unix.Read(w.fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n < unix.SizeofInotifyEvent {
			return ids, all
		}
		for at := 0; at+unix.SizeofInotifyEvent <= n; {
			e := (*unix.InotifyEvent)(unsafe.Pointer(&buf[at]))
			if id, ok := w.ids[int(e.Wd)]; ok && e.Mask&unix.IN_MODIFY != 0 {
				ids[id] = true
			}
			all = all || e.Mask&unix.IN_Q_OVERFLOW != 0
			at += unix.SizeofInotifyEvent + int(e.Len)
		}
	}
}

// await returns when a descriptor has something to read, or at the deadline.
func await(fd int, deadline time.Time) {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	_, _ = unix.Poll(poll, max(1, int(time.Until(deadline).Milliseconds()))) // looked at again either way
}
