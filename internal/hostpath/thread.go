package hostpath

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/threads"
)

// apart are threads that share no descriptors with the process. A thread that
// hangs in the kernel stays even when the process is killed, and would keep what
// it shares: every connection of the daemon above all, whose clients would wait
// for an answer for ever.
var apart = threads.Aside{Prepare: dropDescriptors}

// dropDescriptors gives the thread a table of descriptors of its own that has
// only those of Go's runtime. Linux before 5.9 cannot do it without copying all
// of them first; there they stay shared.
func dropDescriptors() {
	keep := ofRuntime()
	last := keep[len(keep)-1]
	if unix.CloseRange(last+1, math.MaxUint32, unix.CLOSE_RANGE_UNSHARE) != nil {
		return
	}
	for i := 1; i < len(keep); i++ {
		if keep[i]-keep[i-1] > 1 {
			_ = unix.CloseRange(keep[i-1]+1, keep[i]-1, 0)
		}
	}
}

// ofRuntime are the standard descriptors, and those that Go's runtime wakes
// itself with: it does so on whatever thread it happens to be, and ends the
// process when they are not there. They stay the same from the first look on,
// which needs a runtime that has them.
var ofRuntime = sync.OnceValue(func() []uint {
	if r, w, err := os.Pipe(); err == nil { // now it has
		_, _ = r.Close(), w.Close()
	}
	keep := []uint{0, 1, 2}
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, link := range links {
		to, err := os.Readlink(link)
		fd, bad := strconv.ParseUint(filepath.Base(link), 10, 31)
		if err == nil && bad == nil && fd > 2 && (to == "anon_inode:[eventpoll]" || to == "anon_inode:[eventfd]") {
			keep = append(keep, uint(fd))
		}
	}
	slices.Sort(keep)
	return keep
})
