// Package resident keeps the memory small that a process which runs for months has
// of its node: the pages of its garbage, and of its own program.
package resident

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// Grow is how much memory may grow before garbage is collected, in percent of what
// is in use, unless the environment says something else.
func Grow(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// GiveBack gives garbage back, and the pages of the process's own program. The
// kernel maps 16 pages of that where one is needed, and what only the start or an
// operation needs stays mapped for ever: most of a resting process's memory. What
// is needed again costs a fault, and no disk while it is in the page cache. An
// error is that pages stayed, which harms nothing.
func GiveBack() error {
	debug.FreeOSMemory()
	if err := releaseProgram(); err != nil {
		return fmt.Errorf("give back the pages of the program: %w", err)
	}
	return nil
}

// releaseProgram unmaps the pages of the program that nobody has
// written to. They are mapped again as they are needed.
func releaseProgram() error {
	program, err := os.Readlink("/proc/self/exe") // as smaps has it, also when the file was replaced
	if err != nil {
		return err
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer f.Close()
	clean, err := cleanMappings(f, program)
	for _, m := range clean {
		// A page that was written to, by a debugger perhaps, would be lost.
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED); errno != 0 {
			err = errors.Join(err, fmt.Errorf("unmap %x-%x: %w", m.start, m.end, errno))
		}
	}
	return err
}

// mapping is a range of addresses.
type mapping struct{ start, end uintptr }

// cleanMappings are the mappings of a file in smaps, see proc(5), that cannot be
// written to and have no page that was: such a page is no longer the file's.
func cleanMappings(smaps io.Reader, file string) (clean []mapping, err error) {
	var m mapping
	var of bool // m is read-only and of the file
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		line := lines.Text()
		if rest, ok := strings.CutPrefix(line, "Anonymous:"); ok {
			if of && strings.TrimSpace(rest) == "0 kB" {
				clean = append(clean, m)
			}
			continue
		}
		var access string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &m.start, &m.end, &access); n == 3 {
			of = strings.HasPrefix(access, "r-") && strings.HasSuffix(line, " "+file)
		}
	}
	return clean, lines.Err()
}
