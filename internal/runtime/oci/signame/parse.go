// Package signame reads the names of signals as images and the CRI write them. It
// sends none.
package signame

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// The real-time signals as glibc numbers them; it keeps 32 and 33.
const (
	rtMin = 34
	rtMax = 64
)

// Parse understands "SIGTERM", "TERM", "15", "SIGRTMIN+3" and
// "RTMAX-1", in any case. The error is an ErrInvalidArgument.
func Parse(name string) (unix.Signal, error) {
	s := strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(name)), "SIG")
	if n, err := strconv.Atoi(s); err == nil && n > 0 && n <= rtMax {
		return unix.Signal(n), nil
	}
	if sig := unix.SignalNum("SIG" + s); sig != 0 {
		return sig, nil
	}
	for base, from := range map[string]int{"RTMIN": rtMin, "RTMAX": rtMax} {
		rest, ok := strings.CutPrefix(s, base)
		if !ok {
			continue
		}
		offset, err := strconv.Atoi(rest)
		if rest == "" {
			offset, err = 0, nil
		}
		if n := from + offset; err == nil && n >= rtMin && n <= rtMax && (rest == "" || rest[0] == '+' || rest[0] == '-') {
			return unix.Signal(n), nil
		}
	}
	return 0, fmt.Errorf("there is no signal %q; write it as in SIGTERM, 15 or SIGRTMIN+3: %w", name, errdefs.ErrInvalidArgument)
}
