package folder

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/hostpath"
)

// event is something that happened to a file of the folder. Without a name it is
// about the folder itself, or about anything.
type event struct {
	name string
	mask uint32
}

// watch follows one folder.
type watch struct {
	file   *os.File
	events chan event
	done   chan struct{}
	stop   chan struct{}
}

const folderEvents = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_ATTRIB |
	unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// newWatch follows the folder that is open as dir, whatever its path leads to by
// now.
func newWatch(dir *os.File) (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		if own, failed := unix.FcntlInt(dir.Fd(), unix.F_DUPFD_CLOEXEC, 0); failed == nil { // else it is the agent that has no descriptors
			_ = unix.Close(own)
			return nil, fmt.Errorf("watch: %w (see the sysctl fs.inotify.max_user_instances)", err)
		}
		return nil, fmt.Errorf("watch: %w%s", err, hostpath.Advice(err))
	}
	w := &watch{file: os.NewFile(uintptr(fd), "inotify"), events: make(chan event), done: make(chan struct{}), stop: make(chan struct{})}
	if _, err := unix.InotifyAddWatch(fd, fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), folderEvents); err != nil {
		_ = w.file.Close()
		return nil, fmt.Errorf("watch %s: %w (see the sysctl fs.inotify.max_user_watches)", dir.Name(), err)
	}
	go w.run()
	return w, nil
}

// run hands on events until close.
func (w *watch) run() {
	defer close(w.done)
	buf := make([]byte, 16<<10)
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			return
		}
		for rest := buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			var e event
			e, rest = next(rest)
			select {
			case w.events <- e:
			case <-w.stop:
				return
			}
		}
	}
}

// next cuts the first event off what the kernel has written.
func next(buf []byte) (event, []byte) {
	mask := binary.NativeEndian.Uint32(buf[4:])
	end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[12:]))
	name := string(bytes.TrimRight(buf[unix.SizeofInotifyEvent:end], "\x00"))
	return event{name: name, mask: mask}, buf[end:]
}

func (w *watch) close() {
	close(w.stop)
	_ = w.file.Close()
	<-w.done
}
