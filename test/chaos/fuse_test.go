package chaos

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// deadFS is a FUSE file system with one empty folder in every folder, whatever
// its name, whose server is this test. It works until it hangs, and what waits
// for it then does so until it is freed.
type deadFS struct {
	dir   string
	fd    int
	mode  atomic.Int32
	asked atomic.Int32 // requests that got no answer
	stop  chan struct{}
	done  chan struct{}
	once  sync.Once
}

// How the server behaves.
const (
	alive = int32(iota)
	// silent is a server that reads no requests. A process that waits for one of
	// them can be killed.
	silent
	// deaf is a server that reads requests and does not answer. Nothing but the
	// end of the connection ends a process that waits then, not even SIGKILL.
	deaf
)

// mountDead mounts a file system that works on dir, and frees and unmounts it
// with the test.
func mountDead(t *testing.T, dir string) *deadFS {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skipf("needs /dev/fuse: %v", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)
	if err := unix.Mount("dead", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		_ = unix.Close(fd)
		t.Skipf("needs to mount FUSE: %v", err)
	}
	f := &deadFS{dir: dir, fd: fd, stop: make(chan struct{}), done: make(chan struct{})}
	go f.serve()
	t.Cleanup(f.free)
	if _, err := os.Stat(dir); err != nil {
		t.Fatalf("the test's FUSE does not work: %v", err)
	}
	return f
}

// free ends the connection: whoever waits gets an error. Then it unmounts.
func (f *deadFS) free() {
	f.once.Do(func() {
		close(f.stop)
		<-f.done
		_ = unix.Close(f.fd)
		_ = unix.Unmount(f.dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	})
}

// hang stops answering.
func (f *deadFS) hang(how int32) { f.mode.Store(how) }

func (f *deadFS) serve() {
	defer close(f.done)
	buf := make([]byte, 1<<17)
	for {
		select {
		case <-f.stop:
			return
		default:
		}
		if f.mode.Load() == silent {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		n, err := unix.Read(f.fd, buf)
		switch {
		case errors.Is(err, unix.EAGAIN):
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(f.fd), Events: unix.POLLIN}}, 10)
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOENT): // the caller was interrupted
		case err != nil:
			return
		default:
			f.answer(buf[:n])
		}
	}
}

// fuseRequest is the head of what the kernel asks, fuse_in_header.
type fuseRequest struct {
	Len, Opcode        uint32
	Unique, NodeID     uint64
	UID, GID, PID, Pad uint32
}

// The operations that have an answer other than "not supported".
const (
	opLookup     = 1
	opForget     = 2
	opGetattr    = 3
	opInit       = 26
	opOpendir    = 27
	opReaddir    = 28
	opReleasedir = 29
	opInterrupt  = 36
	opBatch      = 42 // forget
)

// folder is fuse_attr of a folder.
func folder() []byte {
	attr := make([]byte, 88)
	binary.NativeEndian.PutUint64(attr, 1)
	binary.NativeEndian.PutUint32(attr[60:], unix.S_IFDIR|0o755)
	binary.NativeEndian.PutUint32(attr[64:], 2)
	return attr
}

func (f *deadFS) answer(raw []byte) {
	var req fuseRequest
	if binary.Read(bytes.NewReader(raw), binary.NativeEndian, &req) != nil {
		return
	}
	if req.Opcode == opForget || req.Opcode == opInterrupt || req.Opcode == opBatch {
		return // these have no answer
	}
	if f.mode.Load() != alive {
		f.asked.Add(1)
		return
	}
	var body []byte
	failed := int32(0)
	switch req.Opcode {
	case opInit:
		body = make([]byte, 64) // fuse_init_out
		binary.NativeEndian.PutUint32(body[0:], 7)
		binary.NativeEndian.PutUint32(body[4:], 31)
		binary.NativeEndian.PutUint32(body[20:], 1<<16) // max_write
	case opGetattr: // fuse_attr_out, which is valid for no time
		body = append(make([]byte, 16), folder()...)
	case opLookup: // fuse_entry_out, likewise
		body = append(make([]byte, 40), folder()...)
		binary.NativeEndian.PutUint64(body, 2)
	case opOpendir:
		body = make([]byte, 16)
	case opReaddir, opReleasedir:
	default:
		failed = -int32(unix.ENOSYS)
	}
	var out bytes.Buffer
	_ = binary.Write(&out, binary.NativeEndian, struct {
		Len    uint32
		Error  int32
		Unique uint64
	}{uint32(16 + len(body)), failed, req.Unique})
	out.Write(body)
	_, _ = unix.Write(f.fd, out.Bytes())
}
