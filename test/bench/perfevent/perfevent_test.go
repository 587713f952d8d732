package perfevent

import (
	"bufio"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// spin runs a stripped program that computes, and returns its pid and its file.
func spin(t *testing.T) (pid int, program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "spin")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "./testdata/spin")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), program)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, program
}

// What a stripped program computes is found by the names of its functions, with
// who has called them, and whether it is in the kernel. Of others nothing is.
func TestSampler(t *testing.T) {
	pid, program := spin(t)
	p, err := Open(program)
	if err != nil {
		t.Fatal(err)
	}
	var computes, enters bool
	for end := time.Now().Add(time.Minute); (!computes || !enters) && time.Now().Before(end); {
		s, err := Start(pid)
		if errors.Is(err, ErrRefused) {
			t.Skip(err)
		} else if err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
		found, err := s.End()
		if err != nil {
			t.Fatal(err)
		}
		for _, sample := range found {
			if sample.PID != pid {
				t.Fatalf("a sample of process %d, not of %d", sample.PID, pid)
			}
			names := p.Names(sample.PCs)
			called := slices.Contains(names, "runtime.main") && names[len(names)-1] == "runtime.goexit"
			computes = computes || called && names[0] == "main.compute" && !sample.Kernel
			enters = enters || called && slices.Contains(names, "main.enter") && sample.Kernel
		}
	}
	if !computes || !enters {
		t.Errorf("found computing: %t, found in the kernel: %t", computes, enters)
	}
}

// A sampler that has ended leaves no descriptor and no memory.
func TestSamplerLeavesNothing(t *testing.T) {
	s, err := Start(os.Getpid())
	if errors.Is(err, ErrRefused) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	if _, err := s.End(); err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	open, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	left := strings.Count(string(maps), "[perf_event]")
	for _, fd := range open {
		if to, _ := os.Readlink(fd); strings.Contains(to, "[perf_event]") {
			left++
		}
	}
	if left > 0 {
		t.Errorf("%d descriptors and buffers are left", left)
	}
}

// record is one as the kernel writes it.
func record(kind uint32, body []byte) []byte {
	out := binary.NativeEndian.AppendUint32(nil, kind)
	out = binary.NativeEndian.AppendUint16(out, 0)
	out = binary.NativeEndian.AppendUint16(out, uint16(headSize+len(body)))
	return append(out, body...)
}

func sample(pid uint32, chain ...int64) []byte {
	out := binary.NativeEndian.AppendUint32(nil, pid)
	out = binary.NativeEndian.AppendUint32(out, pid)
	out = binary.NativeEndian.AppendUint64(out, uint64(len(chain)))
	for _, pc := range chain {
		out = binary.NativeEndian.AppendUint64(out, uint64(pc))
	}
	return out
}

// filled is a buffer in which records begin at a place, so that some go round
// its end.
func filled(at uint64, records ...[]byte) *ring {
	r := &ring{head: &unix.PerfEventMmapPage{Data_head: at, Data_tail: at}, data: make([]byte, 256)}
	for _, b := range slices.Concat(records...) {
		r.data[r.head.Data_head%uint64(len(r.data))] = b
		r.head.Data_head++
	}
	return r
}

func TestDrain(t *testing.T) {
	for at := range uint64(256) {
		r := filled(at,
			record(unix.PERF_RECORD_SAMPLE, sample(7, unix.PERF_CONTEXT_KERNEL, -1<<31, unix.PERF_CONTEXT_USER, 10, 20)),
			record(unix.PERF_RECORD_THROTTLE, make([]byte, 16)),
			record(unix.PERF_RECORD_SAMPLE, sample(8, unix.PERF_CONTEXT_USER, 30)),
		)
		var got []Sample
		if err := r.drain(func(p Sample) { got = append(got, p) }); err != nil {
			t.Fatalf("from %d: %v", at, err)
		}
		want := []Sample{{PID: 7, Kernel: true, PCs: []uint64{10, 20}}, {PID: 8, PCs: []uint64{30}}}
		if !reflect.DeepEqual(got, want) || r.head.Data_tail != r.head.Data_head {
			t.Fatalf("from %d: %+v up to %d of %d", at, got, r.head.Data_tail, r.head.Data_head)
		}
	}
}

func TestDrainOfWhatIsNone(t *testing.T) {
	for name, b := range map[string][]byte{
		"no size":            {9, 0, 0, 0, 0, 0, 0, 0},
		"more than there is": {9, 0, 0, 0, 0, 0, 99, 0},
		"too short":          record(unix.PERF_RECORD_SAMPLE, make([]byte, 8)),
		"addresses missing":  record(unix.PERF_RECORD_SAMPLE, sample(1, 10, 20)[:24]),
		"lost":               record(unix.PERF_RECORD_LOST, make([]byte, 16)),
	} {
		if err := filled(3, b).drain(func(Sample) {}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestOpenOfWhatIsNoProgram(t *testing.T) {
	for _, path := range []string{"perfevent_test.go", "/no/such/file"} {
		if _, err := Open(path); err == nil {
			t.Errorf("%s: no error", path)
		}
	}
}
