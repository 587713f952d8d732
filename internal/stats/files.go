package stats

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/pod"
)

// maxFile is more than any of the files has that are read here.
const maxFile = 32 << 10

// noLimit is what cgroup v1 says of no limit: the largest number of whole pages.
const noLimit = 1<<63 - 1<<16

// files reads small files of the kernel's into one buffer. There are thousands
// to read for a node, so that it makes no garbage and does not ask the poller.
type files struct {
	buf     []byte
	missing bool // a file was not there that every cgroup of its kind has
}

var buffers = sync.Pool{New: func() any { return &files{buf: make([]byte, maxFile)} }}

func openFiles() *files {
	f, _ := buffers.Get().(*files)
	f.missing = false
	return f
}

func (f *files) release() { buffers.Put(f) }

// read returns the content, which holds until the next read, or nil if there is
// none. The kernel makes such a file in one piece: what does not fill the buffer
// is all of it.
func (f *files) read(dir, name string) []byte {
	fd, err := open(dir + "/" + name)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	n, err := read(fd, f.buf)
	if err != nil { // ENODEV: the cgroup was removed meanwhile
		return nil
	}
	return f.buf[:n]
}

// readAll is read for a list, which the kernel hands out page by page.
func (f *files) readAll(dir, name string) []byte {
	fd, err := open(dir + "/" + name)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	n := 0
	for n < len(f.buf) {
		got, err := read(fd, f.buf[n:])
		if err != nil {
			return nil
		}
		if got == 0 {
			break
		}
		n += got
	}
	return f.buf[:n]
}

func open(path string) (int, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func read(fd int, to []byte) (int, error) {
	for {
		n, err := unix.Read(fd, to)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// number is a file that has one number and is in every cgroup of its kind.
func (f *files) number(dir, name string) *uint64 {
	n := f.optional(dir, name)
	f.missing = f.missing || n == nil
	return n
}

// optional is number where not every kernel has the file.
func (f *files) optional(dir, name string) *uint64 {
	return number(bytes.TrimSpace(f.read(dir, name)))
}

// limit is a file with a number, or nil if that stands for no limit.
func (f *files) limit(dir, name string) *uint64 {
	n := f.optional(dir, name) // "max" on cgroup v2 is no number
	if n != nil && *n >= noLimit {
		return nil
	}
	return n
}

// keys are the values of a file with a key and a number on each line.
func (f *files) keys(dir, name string, keys ...string) []*uint64 {
	out := make([]*uint64, len(keys))
	text := f.read(dir, name)
	f.missing = f.missing || text == nil
	for line := range bytes.Lines(text) {
		key, value, _ := bytes.Cut(line, []byte(" "))
		for i, k := range keys {
			if string(key) == k {
				out[i] = number(bytes.TrimSpace(value))
			}
		}
	}
	return out
}

func number(text []byte) *uint64 {
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

// pressure is a file such as cpu.pressure, or nil. A cgroup whose pressure
// somebody has switched off has the file but cannot be read.
func (f *files) pressure(dir, name string) *pod.Pressure {
	var out *pod.Pressure
	for line := range bytes.Lines(f.read(dir, name)) {
		kind, rest, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		s, ok := stall(string(rest))
		if !ok {
			continue
		}
		if out == nil {
			out = &pod.Pressure{}
		}
		switch string(kind) {
		case "some":
			out.Some = s
		case "full":
			out.Full = s
		}
	}
	return out
}

// stall reads "avg10=0.00 avg60=0.00 avg300=0.00 total=0", the total in us.
func stall(text string) (*pod.Stall, bool) {
	s := &pod.Stall{}
	found := 0
	for field := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(field, "=")
		var err error
		switch key {
		case "avg10":
			s.Avg10, err = strconv.ParseFloat(value, 64)
		case "avg60":
			s.Avg60, err = strconv.ParseFloat(value, 64)
		case "avg300":
			s.Avg300, err = strconv.ParseFloat(value, 64)
		case "total":
			var us int64
			us, err = strconv.ParseInt(value, 10, 64)
			s.Total = time.Duration(us) * time.Microsecond
		default:
			continue
		}
		if err != nil {
			return nil, false
		}
		found++
	}
	return s, found == 4
}
