package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// gcPercent is how much memory may grow before garbage is collected, in percent
// of what is in use. That is some MB, so collecting twice as often as Go does
// by itself costs next to nothing, and the daemon is smaller on every node.
const gcPercent = 50

// saveMemory sets that, unless the environment says something else.
func saveMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// restful is how long nothing has to end for the daemon to be at rest.
const restful = 5 * time.Second

// rest calls each time when the daemon has come to rest. busy gets an element
// with the end of an operation.
func rest(ctx context.Context, busy <-chan struct{}, each func()) {
	timer := time.NewTimer(restful)
	defer timer.Stop()
	for {
		select {
		case <-busy:
			timer.Reset(restful)
		case <-timer.C:
			each()
		case <-ctx.Done():
			return
		}
	}
}

// giveBack gives garbage back, and the pages of the daemon's own program. The
// kernel maps 16 pages of that where one is needed, and what only the start or an
// operation needs stays mapped for ever: most of the daemon's memory. What is
// needed again costs a fault, and no disk while it is in the page cache.
func giveBack(log *slog.Logger) {
	debug.FreeOSMemory()
	if err := releaseProgram(); err != nil {
		log.Debug("the pages of the program were not given back", "error", err)
	}
}

// releaseProgram unmaps the pages of the daemon's program that nobody has
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
