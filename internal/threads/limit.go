package threads

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// host is where the limits are, which a test has elsewhere.
type host struct {
	proc, cgroup string
	used         func() int // threads of the machine
}

func thisHost() host {
	return host{proc: "/proc", cgroup: "/sys/fs/cgroup", used: func() int {
		var info unix.Sysinfo_t
		_ = unix.Sysinfo(&info) // cannot fail with a valid address
		return int(info.Procs)
	}}
}

// limit is one on the number of processes and threads.
type limit struct {
	what      string // whose, and what it is called
	remedy    string
	used, max int
}

func (l limit) String() string {
	return fmt.Sprintf("%s allows %d and %d are in use; %s", l.what, l.max, l.used, l.remedy)
}

// room says which limit leaves no n process ids to this process, if one does.
func (h host) room(n int) error {
	for _, l := range h.limits() {
		if l.used+n > l.max {
			return fmt.Errorf("%d more threads need as many process ids, and %s: %w", n, l, errdefs.ErrExhausted)
		}
	}
	return nil
}

// Explain adds to an error of fork(2), in this process, which limit was reached
// and what to do; it then wraps errdefs.ErrExhausted as well. Any other error is
// returned as it is.
func Explain(err error) error {
	if !errors.Is(err, syscall.EAGAIN) {
		return err
	}
	return fmt.Errorf("%s: %w: %w", cmp.Or(Reached(), "no process ids were left for a moment"), errdefs.ErrExhausted, err)
}

// Reached says that there are no process ids for what this process starts, which
// limit is reached, and what to do; "" if there are some.
func Reached() string { return thisHost().reached() }

// slack is how far from a limit one counts as reached that has just been: between
// the failure and the look something may have ended.
const slack = 2

func (h host) reached() string {
	for _, l := range h.limits() {
		if l.used+slack >= l.max {
			return "no process ids are left: " + l.String()
		}
	}
	return ""
}

// limits are those of the process's cgroups, the nearest first, and of the machine.
func (h host) limits() []limit {
	out := h.ofCgroups()
	for _, name := range []string{"pid_max", "threads-max"} {
		if n, err := number(filepath.Join(h.proc, "sys/kernel", name)); err == nil {
			out = append(out, limit{"the machine's kernel." + name, "end processes, or raise it with sysctl", h.used(), n})
		}
	}
	return out
}

func (h host) ofCgroups() (out []limit) {
	own, err := os.ReadFile(filepath.Join(h.proc, "self/cgroup"))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(own)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 || f[1] != "" && f[1] != "pids" {
			continue
		}
		top := filepath.Join(h.cgroup, f[1]) // of version 2 itself
		for path := filepath.Clean("/" + f[2]); ; path = filepath.Dir(path) {
			dir := filepath.Join(top, path)
			used, errUsed := number(filepath.Join(dir, "pids.current"))
			most, errMax := number(filepath.Join(dir, "pids.max")) // not one where it is "max"
			if errUsed == nil && errMax == nil {
				out = append(out, limit{"pids.max of cgroup " + path, "raise it (TasksMax= where systemd has made it), or end processes in it", used, most})
			}
			if path == "/" {
				break
			}
		}
	}
	return out
}

func number(file string) (int, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

// words are those that programs have for the same failure of theirs: libc's, Go's
// runtime's, and those of crun for one that it got from a process it had started.
var words = regexp.MustCompile(`(?i)resource temporarily unavailable|failed to create new OS thread|errno=11\b`)

// Tells says whether a program tells that it found no process ids.
func Tells(said string) bool { return words.MatchString(said) }
