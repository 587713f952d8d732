package monitor_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/monitor/client"
)

// Upgraded in the middle of output as fast as it can be copied, the monitor
// loses and doubles nothing.
func TestUpgradeInFlood(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	const wanted = 3
	stop := n.dir + "/stop"
	began := time.Now()
	n.start(n.container("a", n.bin, "flood", stop))
	first := n.info()
	size := n.logged("a")
	for last, upgrades := first, 0; upgrades < wanted; upgrades++ {
		if err := unix.Kill(first.OuterPID, unix.SIGHUP); err != nil {
			t.Fatal(err)
		}
		n.eventually("the upgrade", func() bool {
			i, err := n.Info(n.ctx)
			upgraded := err == nil && i.StartedAt.After(last.StartedAt)
			last = i
			return upgraded
		})
		// The next one comes in the middle of output, too.
		n.eventually("more of the flood", func() bool { return n.logged("a") > size+100<<20 })
		size = n.logged("a")
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if e := n.wait("a"); e.Code != 0 || e.Lost {
		t.Errorf("exit %+v", e)
	}
	took := time.Since(began)
	payload := n.flooded("a")
	t.Logf("%d upgrades within %s, in which %d MB were printed: %.0f MB/s",
		wanted, took, payload/1_000_000, float64(payload)/1e6/took.Seconds())
}

// logged is the size of a log that exists.
func (n *node) logged(id string) int64 {
	n.t.Helper()
	st, err := os.Stat(n.dir + "/" + id + ".log")
	if err != nil {
		n.t.Fatal(err)
	}
	return st.Size()
}

// flooded checks the log of a flood, which does not fit memory well. It returns
// how many bytes were printed.
func (n *node) flooded(id string) (payload int) {
	n.t.Helper()
	f, err := os.Open(n.dir + "/" + id + ".log")
	if err != nil {
		n.t.Fatal(err)
	}
	defer f.Close()
	got := 0
	var line, want []byte
	entries := bufio.NewScanner(f)
	for entries.Scan() {
		fields := bytes.SplitN(entries.Bytes(), []byte(" "), 4)
		if len(fields) != 4 || string(fields[1]) != "stdout" {
			n.t.Fatalf("%s: entry %q", id, entries.Text())
		}
		// An upgrade may cut a line in two entries.
		if line = append(line, fields[3]...); string(fields[2]) == "P" {
			continue
		}
		if bytes.HasPrefix(line, []byte("total")) {
			break
		}
		want = floodLine(want[:0], got)
		if !bytes.Equal(line, want[:len(want)-1]) {
			n.t.Fatalf("%s: line %q where %d was to be", id, line, got)
		}
		payload += len(want)
		line = line[:0]
		got++
	}
	if string(line) != fmt.Sprintf("total %d", got) || entries.Scan() {
		n.t.Errorf("%s: after %d lines comes %q, where their total was to be and the end", id, got, line)
	}
	return payload
}

// A line of 1 GiB becomes parts and one last entry, and is never kept.
func TestOneLongLine(t *testing.T) {
	t.Parallel()
	const chunks, mib = 16, 64
	n := newNode(t)
	req := n.container("a", n.bin, "line", strconv.Itoa(chunks), strconv.Itoa(mib))
	req.Stdin = true
	n.start(req)
	s, err := n.Attach(n.ctx, "a", attachIn)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	pid := n.info().InnerPID
	check := &longLine{n: n}
	var memory []int
	for i := range chunks {
		check.await((i+1)*mib<<20 - 64<<10)
		memory = append(memory, n.private(pid))
		// Rotated, so that it does not fill the disk.
		piece := fmt.Sprintf("%s/a.log.%d", n.dir, i)
		if err := os.Rename(n.dir+"/a.log", piece); err != nil {
			t.Fatal(err)
		}
		if err := n.ReopenLog(n.ctx, "a"); err != nil {
			t.Fatal(err)
		}
		check.read(piece)
		if _, err := s.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
	}
	if e := n.wait("a"); e.Code != 0 || e.Lost {
		t.Errorf("exit %+v", e)
	}
	check.read(n.dir + "/a.log")
	if check.seen != chunks*mib<<20 || check.last != 1 {
		t.Errorf("%d bytes and %d ends of lines", check.seen, check.last)
	}
	// Once it has grown to its size, it grows no more with what it copies.
	early, late := slices.Max(memory[:chunks/2]), slices.Max(memory[chunks/2:])
	t.Logf("private memory of the inner process in KiB: at most %d in the first half and %d in the second", early, late)
	if grown := late - early; grown > 8<<10 {
		t.Errorf("it grew by %d KiB for 512 MiB", grown)
	}
}

// One write that is larger than the FIFO, after the beginning of a line, does not
// wait for ever.
func TestLargeWriteWithinLine(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	const rounds = 10
	n.start(n.container("a", n.bin, "large", strconv.Itoa(rounds)))
	if e := n.wait("a"); e.Code != 0 || e.Lost {
		t.Errorf("exit %+v", e)
	}
	if got, want := n.text("a", "stdout"), strings.Repeat("begin"+strings.Repeat("x", 1<<20)+"\n", rounds); got != want {
		t.Errorf("%d bytes, not %d", len(got), len(want))
	}
}

// private returns the memory of a process that is its own, in KiB.
func (n *node) private(pid int) int {
	n.t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		n.t.Skipf("needs /proc/PID/smaps_rollup: %v", err)
	}
	sum := 0
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); strings.HasPrefix(line, "Private_") && len(fields) == 3 {
			kib, _ := strconv.Atoi(fields[1])
			sum += kib
		}
	}
	return sum
}

// longLine follows what "line" prints through pieces of a log.
type longLine struct {
	n    *node
	seen int    // bytes
	part []byte // of a block, at the end of an entry
	last int    // entries that end a line
}

// await waits until the log holds what comes before the byte, but for a little
// that may wait in the FIFO.
func (l *longLine) await(byte int) {
	l.n.t.Helper()
	for {
		st, err := os.Stat(l.n.dir + "/a.log")
		if err != nil {
			l.n.t.Fatal(err)
		}
		if l.seen+len(l.part)+int(st.Size()) >= byte {
			return
		}
		if l.n.ctx.Err() != nil {
			l.n.t.Fatalf("%d bytes of %d came", l.seen+int(st.Size()), byte)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// read checks one piece, and removes it.
func (l *longLine) read(path string) {
	l.n.t.Helper()
	f, err := os.Open(path)
	if err != nil {
		l.n.t.Fatal(err)
	}
	defer f.Close()
	for r := bufio.NewReaderSize(f, 64<<10); ; {
		entry, err := r.ReadSlice('\n')
		if errors.Is(err, io.EOF) && len(entry) == 0 {
			break
		}
		if err != nil {
			l.n.t.Fatalf("%s: entry %.80q: %v", path, entry, err)
		}
		fields := strings.SplitN(strings.TrimSuffix(string(entry), "\n"), " ", 4)
		if len(fields) != 4 || fields[1] != "stdout" || len(fields[3]) > monitorv1.DefaultLogMaxLine {
			l.n.t.Fatalf("%s: entry %.80q", path, entry)
		}
		if fields[2] == "F" {
			l.last++
		} else if fields[2] != "P" || l.last > 0 {
			l.n.t.Fatalf("%s: entry %.80q after the end of the line", path, entry)
		}
		l.blocks(fields[3])
	}
	if err := os.Remove(path); err != nil {
		l.n.t.Fatal(err)
	}
}

// blocks checks what is complete of the line.
func (l *longLine) blocks(text string) {
	l.n.t.Helper()
	l.part = append(l.part, text...)
	const size = 64 << 10
	for len(l.part) >= size {
		if i, err := strconv.Atoi(string(l.part[:16])); err != nil || i != l.seen/size || string(l.part[16:size]) != lineBlock {
			l.n.t.Fatalf("%.40q... where block %d was to be", l.part, l.seen/size)
		}
		l.seen += size
		l.part = append(l.part[:0], l.part[size:]...)
	}
}

// Of many sizes the last one holds, whatever happens to the monitor meanwhile.
func TestResizeOften(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	req := n.terminal("a", "unused")
	req.Command = append(req.Command[:4], n.bin, "sizes")
	n.start(req)
	n.eventually("the start", func() bool { return strings.Contains(n.text("a", "stdout"), "up") })
	open := n.descriptors()
	for i := range 1000 {
		switch i {
		case 300:
			n.kill(n.info().InnerPID)
		case 600:
			if err := unix.Kill(n.info().OuterPID, unix.SIGHUP); err != nil {
				t.Fatal(err)
			}
		}
		if err := n.Resize(n.ctx, "a", uint16(i+1), uint16(2000-i)); err != nil {
			t.Fatalf("resize %d: %v", i, err)
		}
	}
	n.eventually("the last size", func() bool { return strings.Contains(n.text("a", "stdout"), "1001 1000\r\n") })
	if now := n.descriptors(); now > open+4 {
		t.Errorf("%d descriptors are open, before it were %d", now, open)
	}
	s, err := n.Attach(n.ctx, "a", client.AttachStreams{Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, _ = s.Write([]byte("end\n"))
	if e := n.wait("a"); e.Code != 4 || e.Lost {
		t.Errorf("exit %+v", e)
	}
}

// descriptors counts those of the inner process.
func (n *node) descriptors() int {
	n.t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.info().InnerPID))
	if err != nil {
		n.t.Fatal(err)
	}
	return len(open)
}

// While there is no inner process, the outer one records exits, at their time.
func TestExitWhileInnerIsDead(t *testing.T) {
	t.Parallel()
	once, gate := t.TempDir()+"/once", t.TempDir()+"/gate"
	if err := os.WriteFile(once, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n := newNode(t, failpoint.MonitorEnv+"=monitor.inner.begun=wait:"+gate+"!"+once)
	pass := func() {
		if err := os.WriteFile(gate, nil, 0o600); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(pass)
	path, open := n.valve("valve")
	n.start(n.shell("a", "read x < "+path+"; echo bye; exit 9"))
	n.start(n.shell("b", "read x < "+path+"; kill -9 $$"))
	before := n.info()
	if err := os.Remove(once); err != nil {
		t.Fatal(err)
	}
	n.kill(before.InnerPID)
	n.eventually("the next inner process, which waits", func() bool {
		_, err := os.Stat(once)
		return err == nil && !alive(before.InnerPID)
	})
	opened := time.Now()
	open()
	n.eventually("records of the outer process", func() bool {
		exits, err := os.ReadDir(n.opt.StateDir + "/monitor/exits")
		return err == nil && len(exits) == 2
	})
	seen := time.Now()
	pass()
	if after := n.info(); after.InnerPID == before.InnerPID || after.OuterPID != before.OuterPID {
		t.Errorf("after %+v came %+v", before, after)
	}
	a, b := n.wait("a"), n.wait("b")
	if a.Code != 9 || a.Signal != 0 || a.Lost || n.text("a", "stdout") != "bye\n" {
		t.Errorf("exit of a: %+v", a)
	}
	if b.Code != 137 || b.Signal != 9 || b.Lost {
		t.Errorf("exit of b: %+v", b)
	}
	for _, e := range []monitorv1.Exit{a, b} {
		if e.FinishedAt.Before(opened) || e.FinishedAt.After(seen) {
			t.Errorf("%s ended at %s, not between %s and %s", e.ID, e.FinishedAt, opened, seen)
		}
	}
	n.forgetAll()
}
