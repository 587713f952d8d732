package sealed

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// seals are exactly those that crun wants to see.
const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

// largest bounds what is copied, in bytes.
const largest = 32 << 20

// Programs keeps the copies. The zero value is ready.
type Programs struct {
	mu     sync.Mutex
	copies map[string]*kept
}

// kept is a copy, and the program that it was made of. Whoever runs it holds
// the file, which is closed when nobody does any more.
type kept struct {
	of   identity
	file *os.File // nil: there can be none
}

// identity changes with the program on the disk.
type identity struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

// Run calls start with the path under which the program is to be executed,
// which is valid until start returns: that of its copy, or its own if it cannot
// be copied. A program that has changed on the disk is copied anew.
func (p *Programs) Run(program string, start func(path string) error) error {
	f := p.find(program)
	if f == nil {
		return start(program)
	}
	defer runtime.KeepAlive(f)
	// The name has to lead to this process's descriptor: in the child, which is
	// "self" when it opens the name, Go may have put another one in its place.
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return start(program)
	}
	return start("/proc/" + self + "/fd/" + strconv.Itoa(int(f.Fd())))
}

func (p *Programs) find(program string) *os.File {
	p.mu.Lock()
	defer p.mu.Unlock()
	var st unix.Stat_t
	if err := unix.Stat(program, &st); err != nil {
		return nil // what is wrong with it, its own path will tell
	}
	id := identity{dev: st.Dev, ino: st.Ino, size: st.Size, mtime: st.Mtim, ctime: st.Ctim}
	k := p.copies[program]
	if k == nil || k.of != id {
		file, err := duplicate(program)
		if err != nil && !errors.Is(err, errUnfit) {
			return nil // and tried again the next time
		}
		k = &kept{of: id, file: file}
		if p.copies == nil {
			p.copies = map[string]*kept{}
		}
		p.copies[program] = k
	}
	return k.file
}

// errUnfit is of a program that would not run from a copy.
var errUnfit = errors.New("no ELF program of moderate size")

func duplicate(program string) (*os.File, error) {
	src, err := os.Open(program)
	if err != nil {
		return nil, err
	}
	defer func() { _ = src.Close() }()
	// The kernel lets a script's interpreter open the script by its name, which
	// a closed descriptor has no more.
	magic := make([]byte, 4)
	info, err := src.Stat()
	if err != nil {
		return nil, err
	}
	if _, err := src.ReadAt(magic, 0); err != nil || string(magic) != "\x7fELF" || info.Size() > largest {
		return nil, errUnfit
	}
	dst, err := create(filepath.Base(program))
	if err != nil {
		return nil, err
	}
	defer func() { _ = dst.Close() }()
	if n, err := io.Copy(dst, src); err != nil || n != info.Size() {
		return nil, fmt.Errorf("copy %s: %d of %d bytes: %w", program, n, info.Size(), err)
	}
	if _, err := unix.FcntlInt(dst.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	// A file that somebody may write to cannot be executed.
	return os.Open("/proc/self/fd/" + strconv.Itoa(int(dst.Fd())))
}

// create makes an empty file in memory that may become a program. Kernels
// before 6.3 do not know MFD_EXEC, and need it not.
func create(name string) (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
