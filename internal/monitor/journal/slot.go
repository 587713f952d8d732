package journal

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The areas of a slot, in bytes.
const (
	headerSize = 4096
	RawSize    = 32 << 10 // peeked bytes, at most
	OutSize    = 48 << 10 // formatted bytes, at most
	slotSize   = headerSize + 2*RawSize + OutSize
	maxID      = 256
)

// The states of a slot. There are two places for a step, so that one can take
// the place of another in one moment.
const (
	clear uint32 = iota
	armed
	expecting
	armedSecond
)

// Step is one piece of output on its way.
type Step struct {
	ID       string
	Stream   byte
	Dev, Ino uint64
	Offset   int64
	Raw      int  // bytes of the raw area that Out stands for
	Out      int  // bytes of the out area; zero means that nothing was formatted
	Consumed bool // the raw bytes are consumed already: a terminal
	Done     int  // of a terminal: bytes of Raw that are in the log once Out is
}

// Slot holds one step at a time. It is not for concurrent use.
type Slot struct {
	mem  []byte
	path string
	pipe [2]int
	lent bool // see Pool.Lend
}

// openSlot maps the file at path, and makes it if it is missing.
func openSlot(path string) (*Slot, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal slot %s: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	// Allocated now: a tmpfs that is full when a page is first touched would
	// kill the process.
	if err := unix.Fallocate(fd, 0, 0, slotSize); err != nil {
		return nil, fmt.Errorf("make room for journal slot %s: %w", path, err)
	}
	mem, err := unix.Mmap(fd, 0, slotSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map journal slot %s: %w", path, err)
	}
	s := &Slot{mem: mem, path: path}
	if err := unix.Pipe2(s.pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		_ = unix.Munmap(mem)
		return nil, os.NewSyscallError("pipe2", err)
	}
	return s, nil
}

func (s *Slot) close() {
	_ = unix.Close(s.pipe[0])
	_ = unix.Close(s.pipe[1])
	// The memory stays mapped until the process ends if this fails.
	_ = unix.Munmap(s.mem)
	s.mem = nil
}

// discard removes the slot.
func (s *Slot) discard() error {
	s.close()
	return os.Remove(s.path)
}

func (s *Slot) state() *uint32 { return (*uint32)(unsafe.Pointer(&s.mem[0])) }

// Raw is the area for the bytes as they were written.
func (s *Slot) Raw() []byte { return s.mem[headerSize : headerSize+RawSize] }

// Scratch is the area into which the bytes are consumed.
func (s *Slot) Scratch() []byte { return s.mem[headerSize+RawSize : headerSize+2*RawSize] }

// Out is the empty area for formatted bytes; append to it.
func (s *Slot) Out() []byte { return s.mem[headerSize+2*RawSize : headerSize+2*RawSize : slotSize] }

// Pipe is an empty private pipe to tee into, its read end first.
func (s *Slot) Pipe() [2]int { return s.pipe }

// The header: state, stream, consumed, length of the id, five numbers, the id,
// one more number. The second step has the same from atSecond on, without the
// state. A successor of another version reads it too.
const (
	atSecond   = headerSize / 2
	atStream   = 4
	atConsumed = 5
	atIDLen    = 6
	atNumbers  = 8
	atID       = atNumbers + 5*8
	atDone     = atID + maxID
)

func (s *Slot) put(at int, step Step) {
	h := s.mem[at:headerSize]
	h[atStream] = step.Stream
	h[atConsumed] = 0
	if step.Consumed {
		h[atConsumed] = 1
	}
	n := copy(h[atID:atID+maxID], step.ID)
	binary.LittleEndian.PutUint16(h[atIDLen:], uint16(n))
	for i, v := range []uint64{step.Dev, step.Ino, uint64(step.Offset), uint64(step.Raw), uint64(step.Out)} {
		binary.LittleEndian.PutUint64(h[atNumbers+8*i:], v)
	}
	binary.LittleEndian.PutUint64(h[atDone:], uint64(step.Done))
}

func (s *Slot) get(at int) Step {
	h := s.mem[at:headerSize]
	number := func(i int) uint64 { return binary.LittleEndian.Uint64(h[atNumbers+8*i:]) }
	n := min(int(binary.LittleEndian.Uint16(h[atIDLen:])), maxID)
	return Step{
		ID:       string(h[atID : atID+n]),
		Stream:   h[atStream],
		Consumed: h[atConsumed] == 1,
		Dev:      number(0),
		Ino:      number(1),
		Offset:   int64(number(2)),
		Raw:      int(min(number(3), RawSize)),
		Out:      int(min(number(4), OutSize)),
		Done:     int(min(binary.LittleEndian.Uint64(h[atDone:]), number(3), RawSize)),
	}
}

// Arm notes the step whose bytes are in Raw and Out by now, in place of one that
// was noted before.
func (s *Slot) Arm(step Step) {
	raw, scratch := s.Raw()[:step.Raw], s.Scratch()
	if !step.Consumed {
		complement(scratch[:step.Raw], raw)
	}
	switch atomic.LoadUint32(s.state()) {
	case armed, expecting:
		s.put(atSecond, step)
		atomic.StoreUint32(s.state(), armedSecond)
	default:
		s.put(0, step)
		atomic.StoreUint32(s.state(), armed)
	}
}

// complement works on words: it is on the path of every byte of output.
func complement(to, from []byte) {
	i := 0
	for ; i+8 <= len(from); i += 8 {
		binary.LittleEndian.PutUint64(to[i:], ^binary.LittleEndian.Uint64(from[i:]))
	}
	for ; i < len(from); i++ {
		to[i] = ^from[i]
	}
}

// Expect notes that bytes of a terminal are about to be read into the first n
// bytes of Raw, which it zeroes. The slot is clear before.
func (s *Slot) Expect(step Step, n int) {
	for i := range s.Raw()[:n] {
		s.Raw()[i] = 0
	}
	step.Raw, step.Out, step.Consumed, step.Done = n, 0, true, 0
	s.put(0, step)
	atomic.StoreUint32(s.state(), expecting)
}

// Clear notes that the step is complete, or was given up before it began.
func (s *Slot) Clear() { atomic.StoreUint32(s.state(), clear) }

// Pending returns the step that a dead process has left. Out zero means that
// the Raw bytes of a terminal from Done on are not formatted.
func (s *Slot) Pending() (Step, bool) {
	switch atomic.LoadUint32(s.state()) {
	case armed:
		return s.get(0), true
	case armedSecond:
		return s.get(atSecond), true
	case expecting:
		step := s.get(0)
		raw := s.Raw()[:step.Raw]
		for len(raw) > 0 && raw[len(raw)-1] == 0 {
			raw = raw[:len(raw)-1]
		}
		step.Raw = len(raw)
		return step, step.Raw > 0
	}
	return Step{}, false
}

// Unconsumed returns how many bytes of an armed step the dead process had not
// consumed: those whose place in the scratch area still holds the complement.
func (s *Slot) Unconsumed(step Step) int {
	if step.Consumed {
		return 0
	}
	raw, scratch := s.Raw()[:step.Raw], s.Scratch()[:step.Raw]
	left := 0
	for i, b := range raw {
		if scratch[i] == ^b {
			left++
		}
	}
	return left
}

// Entries returns the first n bytes of the out area.
func (s *Slot) Entries(n int) []byte { return s.mem[headerSize+2*RawSize:][:n] }
