package perfevent

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// hertz is how often a processor is looked at in a second of work. It is a
	// prime, so that it keeps step with nobody's timer.
	hertz = 3989
	// ringPages is the size of a processor's buffer. It holds more than a second.
	ringPages = 512
	// drainEvery is how long samples stay in the buffers.
	drainEvery = 50 * time.Millisecond
)

// ErrRefused is wrapped by the error of Start where the kernel lets this process
// look at nobody, or cannot.
var ErrRefused = errors.New("the kernel does not let this process sample others")

// Sample is what a process was found doing at one moment.
type Sample struct {
	PID    int
	Kernel bool // it was in the kernel
	// PCs are where it was in the program and where that would have returned to,
	// the innermost first.
	PCs []uint64
}

// Sampler looks at processes until End is called.
type Sampler struct {
	rings   []*ring
	stop    chan struct{}
	stopped chan error
	pids    map[int]bool
	found   []Sample
}

// Start looks at processes, by their pids as this one has them.
func Start(pids ...int) (*Sampler, error) {
	s := &Sampler{stop: make(chan struct{}), stopped: make(chan error, 1), pids: map[int]bool{}}
	for _, pid := range pids {
		s.pids[pid] = true
	}
	cpus, err := online()
	if err != nil {
		return nil, err
	}
	for _, cpu := range cpus {
		r, err := newRing(cpu)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("sample processor %d: %w", cpu, err), s.close())
		}
		s.rings = append(s.rings, r)
	}
	for _, r := range s.rings {
		if err := unix.IoctlSetInt(r.fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
			return nil, errors.Join(fmt.Errorf("begin to sample: %w", err), s.close())
		}
	}
	go func() { s.stopped <- s.run() }()
	return s, nil
}

// run empties the buffers until it is stopped, and then once more.
func (s *Sampler) run() error {
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	for {
		last := false
		select {
		case <-tick.C:
		case <-s.stop:
			last = true
			for _, r := range s.rings {
				_ = unix.IoctlSetInt(r.fd, unix.PERF_EVENT_IOC_DISABLE, 0) // closing it does that, too
			}
		}
		for _, r := range s.rings {
			if err := r.drain(s.take); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
	}
}

func (s *Sampler) take(p Sample) {
	if s.pids[p.PID] {
		s.found = append(s.found, p)
	}
}

// End returns what was found, in no order.
func (s *Sampler) End() ([]Sample, error) {
	close(s.stop)
	err := errors.Join(<-s.stopped, s.close())
	return s.found, err
}

func (s *Sampler) close() error {
	var failed []error
	for _, r := range s.rings {
		failed = append(failed, unix.Munmap(r.memory), unix.Close(r.fd))
	}
	return errors.Join(failed...)
}

// ring is the buffer of one processor, which the kernel writes.
type ring struct {
	fd     int
	memory []byte
	head   *unix.PerfEventMmapPage
	data   []byte
}

func newRing(cpu int) (*ring, error) {
	attr := &unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample: hertz, Sample_type: unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_CALLCHAIN,
		Bits: unix.PerfBitDisabled | unix.PerfBitFreq | unix.PerfBitExcludeIdle,
	}
	fd, err := unix.PerfEventOpen(attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, os.NewSyscallError("perf_event_open", err))
	}
	page := os.Getpagesize()
	memory, err := unix.Mmap(fd, 0, (1+ringPages)*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("mmap", err), unix.Close(fd))
	}
	return &ring{fd: fd, memory: memory, head: (*unix.PerfEventMmapPage)(unsafe.Pointer(&memory[0])), data: memory[page:]}, nil
}

// online are the numbers of processors that work.
func online() (out []int, err error) {
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return nil, err
	}
	for part := range strings.SplitSeq(strings.TrimSpace(string(text)), ",") {
		first, last, ok := strings.Cut(part, "-")
		if !ok {
			last = first
		}
		from, errFrom := strconv.Atoi(first)
		to, errTo := strconv.Atoi(last)
		if err := errors.Join(errFrom, errTo); err != nil {
			return nil, fmt.Errorf("processors %q: %w", text, err)
		}
		for cpu := from; cpu <= to; cpu++ {
			out = append(out, cpu)
		}
	}
	return out, nil
}
