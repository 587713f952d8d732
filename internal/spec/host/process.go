package host

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"fairlead.run/internal/errdefs"
)

// StartTime is field 22 of /proc/PID/stat, in clock ticks since boot. The second
// field, the name, may have anything in it, so counting starts behind its last
// parenthesis.
func StartTime(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	stat := string(b)
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(f) < 20 {
		return 0, fmt.Errorf("read /proc/%d/stat: %d fields: %w", pid, len(f), errdefs.ErrInternal)
	}
	return strconv.ParseUint(f[19], 10, 64)
}
