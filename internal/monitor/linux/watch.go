package linux

import (
	"context"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Watch sees when processes end, any number of them by one goroutine that
// sleeps meanwhile.
type Watch struct {
	epoll *os.File

	mu    sync.Mutex
	last  int32
	keys  map[int32]string  // by what the kernel returns
	added map[string]pidfds // by key
}

// pidfds is one entry of the kernel's list.
type pidfds struct {
	fd    int
	token int32
}

// NewWatch makes one that watches nobody yet.
func NewWatch() (*Watch, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.SetNonblock(fd, true) // for os.File to wait for it without a thread
	}
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	return &Watch{epoll: os.NewFile(uintptr(fd), "ends of processes"), keys: map[int32]string{}, added: map[string]pidfds{}}, nil
}

// Add watches the process of a pidfd, which stays the caller's and is closed
// after Remove. Of one that has ended already nothing is seen: when it did is
// not known here.
func (w *Watch) Add(key string, pidfd int) error {
	w.Remove(key)
	poll := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	if n, err := unix.Poll(poll, 0); err == nil && n > 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last++
	// Told once: an end stays true.
	e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: w.last}
	if err := unix.EpollCtl(RawFD(w.epoll), unix.EPOLL_CTL_ADD, pidfd, &e); err != nil {
		return os.NewSyscallError("epoll_ctl", err)
	}
	w.keys[w.last], w.added[key] = key, pidfds{pidfd, w.last}
	return nil
}

// Remove watches the process no more. A descriptor that is closed without it
// stays with the kernel while others have a copy.
func (w *Watch) Remove(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, ok := w.added[key]
	if !ok {
		return
	}
	delete(w.added, key)
	delete(w.keys, p.token)
	_ = unix.EpollCtl(RawFD(w.epoll), unix.EPOLL_CTL_DEL, p.fd, nil) // fails only after a close
}

// Run calls see with the key of each process that ends, and when that was seen,
// until ctx ends.
func (w *Watch) Run(ctx context.Context, see func(key string, at time.Time)) {
	stop := context.AfterFunc(ctx, func() { _ = w.epoll.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := w.epoll.SyscallConn()
	for err == nil {
		var ended [64]unix.EpollEvent
		n := 0
		err = raw.Read(func(fd uintptr) bool {
			n, _ = unix.EpollWait(int(fd), ended[:], 0) // the only error is that it was interrupted
			return n > 0
		})
		at := time.Now()
		for _, e := range ended[:max(n, 0)] {
			if key, ok := w.key(e.Fd); ok {
				see(key, at)
			}
		}
	}
}

func (w *Watch) key(token int32) (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key, ok := w.keys[token]
	return key, ok
}

// Close ends Run and gives up what the kernel keeps.
func (w *Watch) Close() error { return w.epoll.Close() }
