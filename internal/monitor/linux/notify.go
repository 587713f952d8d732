package linux

import (
	"os"

	"golang.org/x/sys/unix"
)

// NotifySystemd sends one message to systemd, if it has started this process or
// one that gave it its environment.
func NotifySystemd(message string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	if path[0] == '@' {
		path = "\x00" + path[1:]
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 1})
	// systemd that does not listen misses a report; nothing else depends on it.
	_ = unix.Sendto(fd, []byte(message), unix.MSG_NOSIGNAL, &unix.SockaddrUnix{Name: path})
}
