package perfevent

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// headSize is that of perf_event_header: the type, flags, and the size of all.
const headSize = 8

// drain takes what the kernel has written. A record may begin at the end of the
// buffer and go on at its beginning.
func (r *ring) drain(take func(Sample)) error {
	head, tail := atomic.LoadUint64(&r.head.Data_head), r.head.Data_tail
	for tail < head {
		start := r.copy(tail, headSize)
		kind, size := binary.NativeEndian.Uint32(start), uint64(binary.NativeEndian.Uint16(start[6:]))
		if size < headSize || tail+size > head {
			return fmt.Errorf("read samples: a record of type %d has %d bytes of %d", kind, size, head-tail)
		}
		switch kind {
		case unix.PERF_RECORD_SAMPLE:
			p, err := parse(r.copy(tail, size)[headSize:])
			if err != nil {
				return err
			}
			take(p)
		case unix.PERF_RECORD_LOST:
			return fmt.Errorf("read samples: some were lost, as nobody took them in %s", drainEvery)
		}
		tail += size
	}
	atomic.StoreUint64(&r.head.Data_tail, tail)
	return nil
}

func (r *ring) copy(at, size uint64) []byte {
	out := make([]byte, 0, size)
	at %= uint64(len(r.data))
	out = append(out, r.data[at:min(at+size, uint64(len(r.data)))]...)
	return append(out, r.data[:size-uint64(len(out))]...)
}

// parse reads a sample: who, and a list of addresses, in which markers tell
// whether those that follow are in the kernel or in the program.
func parse(b []byte) (p Sample, err error) {
	const before = 16 // pid and thread, and how many addresses follow
	if len(b) < before || uint64(len(b)-before)/8 < binary.NativeEndian.Uint64(b[8:]) {
		return p, fmt.Errorf("read samples: one has %d bytes", len(b))
	}
	p.PID = int(binary.NativeEndian.Uint32(b))
	n := binary.NativeEndian.Uint64(b[8:])
	user := false
	for i := range n {
		pc := binary.NativeEndian.Uint64(b[before+8*i:])
		switch context := int64(pc); {
		case context == unix.PERF_CONTEXT_KERNEL:
			p.Kernel, user = true, false
		case context == unix.PERF_CONTEXT_USER:
			user = true
		case context < 0 && context >= unix.PERF_CONTEXT_MAX: // another marker
			user = false
		case user:
			p.PCs = append(p.PCs, pc)
		}
	}
	return p, nil
}
