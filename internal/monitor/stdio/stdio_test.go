package stdio

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// criu opens what a container has open by the flags that it finds, so that none
// of them may forbid that.
func TestOpenEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	link := path + "-link"
	if err := errors.Join(unix.Mkfifo(path, 0o600), os.Symlink(path, link)); err != nil {
		t.Fatal(err)
	}
	fd, err := openEnd(path, unix.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_NOFOLLOW != 0 || flags&unix.O_ACCMODE != unix.O_RDWR {
		t.Errorf("flags %#o %v", flags, err)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("it is not closed on exec: %#o %v", flags, err)
	}
	if fd, err := openEnd(link, unix.O_RDWR); err == nil {
		_ = unix.Close(fd)
		t.Error("a link was followed")
	}
}
