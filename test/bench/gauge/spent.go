package gauge

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/test/bench/arena"
)

// Spent is processor time up to a moment, by whose it is.
type Spent struct {
	Daemon time.Duration
	// Children are the programs that the daemon has started, and theirs.
	Children time.Duration
	Monitor  time.Duration
	// Programs are those that the monitor has started: the OCI runtime, and the
	// containers that it became.
	Programs time.Duration
	// Client is this process.
	Client time.Duration
	// Machine is everything on the machine, the kernel's own threads too.
	Machine time.Duration
	// Kernel and Ticks are how often the clock's tick has found the machine in the
	// kernel, and how often at work at all.
	Kernel, Ticks int64
	// At is the moment.
	At time.Time
}

// Sub is what was spent since an earlier moment.
func (s Spent) Sub(before Spent) Spent {
	return Spent{
		Daemon: s.Daemon - before.Daemon, Children: s.Children - before.Children, Monitor: s.Monitor - before.Monitor,
		Programs: s.Programs - before.Programs, Client: s.Client - before.Client, Machine: s.Machine - before.Machine,
		Kernel: s.Kernel - before.Kernel, Ticks: s.Ticks - before.Ticks,
	}
}

// Add is what was spent in two times together.
func (s Spent) Add(more Spent) Spent { return s.Sub(Spent{}.Sub(more)) }

// Others is what nobody whose process is known has spent.
func (s Spent) Others() time.Duration {
	return s.Machine - s.Daemon - s.Children - s.Monitor - s.Programs - s.Client
}

// monitorProgram is how the kernel names the monitor's processes: it keeps 15 bytes.
const monitorProgram = "fairlead-monito"

// isMonitor says whether a process is one of the monitor's two.
func (d Daemon) isMonitor(p process) bool {
	return p.name == monitorProgram && arena.SameMounts(p.pid, d.Pid)
}

// Monitor are the pids of the monitor's processes.
func (d Daemon) Monitor() (pids []int, err error) {
	all, err := processes()
	for _, p := range all {
		if d.isMonitor(p) {
			pids = append(pids, p.pid)
		}
	}
	return pids, err
}

// userTick is the unit of times in /proc, whatever the kernel's own tick is.
const userTick = time.Second / 100

// Spent reads what Fairlead has spent. Processes that live and that have been
// waited for are in it; it is for moments at which nothing is about to end.
func (d Daemon) Spent() (Spent, error) {
	s := Spent{At: time.Now()}
	all, err := processes()
	if err != nil {
		return s, err
	}
	for _, p := range all {
		own, err := ownTime(p.pid)
		if err != nil {
			continue // it has just ended
		}
		switch below := all.above(p, func(q process) bool { return q.pid == d.Pid || d.isMonitor(q) }); {
		case p.pid == d.Pid:
			s.Daemon += own
			s.Children += p.waited
		case d.isMonitor(p):
			s.Monitor += own
			s.Programs += p.waited
		case below == d.Pid:
			s.Children += own + p.waited
		case below != 0:
			s.Programs += own + p.waited
		}
	}
	if s.Client, err = ownTime(os.Getpid()); err != nil {
		return s, err
	}
	return s, s.machine()
}

// process is one that lives.
type process struct {
	pid, parent int
	name        string
	waited      time.Duration // of its children that have ended
}

type table map[int]process

// above is the nearest process above p that fits, or 0.
func (t table) above(p process, fits func(process) bool) int {
	for range t { // a parent may have ended meanwhile, and its pid be another's
		q, ok := t[p.parent]
		if !ok {
			return 0
		}
		if fits(q) {
			return q.pid
		}
		p = q
	}
	return 0
}

func processes() (table, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	out := table{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			if gone(err) {
				continue
			}
			return nil, fmt.Errorf("list processes: %w", err)
		}
		p, err := parseStat(string(text))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", f, err)
		}
		out[p.pid] = p
	}
	return out, nil
}

// parseStat reads /proc/PID/stat. A name may have spaces and brackets in it.
func parseStat(text string) (p process, err error) {
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return p, fmt.Errorf("no name in %q", text)
	}
	rest := strings.Fields(text[end+1:]) // begins with the third field of proc_pid_stat(5)
	if len(rest) < 15 {
		return p, fmt.Errorf("%d fields in %q", len(rest)+2, text)
	}
	p.name = text[open+1 : end]
	var n [4]int64
	for i, field := range []string{strings.TrimSpace(text[:open]), rest[1], rest[13], rest[14]} { // pid, ppid, cutime, cstime
		if n[i], err = strconv.ParseInt(field, 10, 64); err != nil {
			return p, err
		}
	}
	p.pid, p.parent, p.waited = int(n[0]), int(n[1]), time.Duration(n[2]+n[3])*userTick
	return p, nil
}

// ownTime is the time of a process with all of its threads, those that have
// ended too, in nanoseconds. Its clock's number is made of its pid.
func ownTime(pid int) (time.Duration, error) {
	const ofProcess = 2 // CPUCLOCK_SCHED without the bit for a thread
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|ofProcess), &t); err != nil {
		return 0, fmt.Errorf("read the clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// machine reads /proc/stat: the time in which no processor was idle.
func (s *Spent) machine() error {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &up); err != nil {
		return err
	}
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(first)
	if len(fields) < 8 {
		return fmt.Errorf("read /proc/stat: its first line is %q", first)
	}
	var n []int64 // user, nice, system, idle, iowait, irq, softirq
	for _, f := range fields[1:8] {
		v, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return fmt.Errorf("read /proc/stat: %w", err)
		}
		n = append(n, v)
	}
	s.Machine = time.Duration(up.Nano())*time.Duration(runtime.NumCPU()) - time.Duration(n[3]+n[4])*userTick
	s.Kernel = n[2] + n[5] + n[6]
	s.Ticks = s.Kernel + n[0] + n[1]
	return nil
}
