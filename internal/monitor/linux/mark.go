package linux

import (
	"os"
	"strconv"
	"strings"
)

// Mark is the hard limit of a process for time without sleep at real-time
// priority, in microseconds; 0 if it has none or has ended. A process hands it on
// to all that it starts, whatever becomes of sessions and parents, so that a
// large random number tells them from all others, and limits nothing.
//
// It is read from a file, as asking the kernel for the limit of another user's
// process takes CAP_SYS_RESOURCE.
func Mark(pid int) uint64 {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits")
	if err != nil {
		return 0
	}
	return parseMark(string(data))
}

func parseMark(limits string) uint64 {
	_, rest, _ := strings.Cut(limits, "Max realtime timeout ")
	fields := strings.Fields(rest) // soft, hard, unit
	if len(fields) < 2 {
		return 0
	}
	mark, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return 0 // "unlimited"
	}
	return mark
}
