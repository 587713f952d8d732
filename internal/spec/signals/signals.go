// Package signals knows the names that callers and images have for signals. It
// sends none.
package signals

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The real-time signals that programs may use; the C library keeps 32 and 33.
const (
	sigRTMin = 34
	sigRTMax = 64
)

// otherNames are the CRI's second names for signals.
var otherNames = map[string]string{"SIGCLD": "SIGCHLD", "SIGIOT": "SIGABRT", "SIGPOLL": "SIGIO"}

// Name understands "15", "TERM", "SIGTERM", "RTMIN+3" and the CRI's
// "SIGRTMINPLUS3", and gives the usual form of it.
func Name(s string) (string, bool) {
	if n, err := strconv.Atoi(s); err == nil {
		if n >= sigRTMin && n <= sigRTMax {
			return realTime(n), true
		}
		name := unix.SignalName(unix.Signal(n))
		return name, name != ""
	}
	name := "SIG" + strings.TrimPrefix(strings.ToUpper(s), "SIG")
	if other, ok := otherNames[name]; ok {
		return other, true
	}
	if unix.SignalNum(name) != 0 {
		return unix.SignalName(unix.SignalNum(name)), true
	}
	name = strings.NewReplacer("PLUS", "+", "MINUS", "-").Replace(name)
	base, offset := sigRTMin, strings.TrimPrefix(name, "SIGRTMIN")
	if strings.HasPrefix(name, "SIGRTMAX") {
		base, offset = sigRTMax, strings.TrimPrefix(name, "SIGRTMAX")
	}
	if offset == name {
		return "", false
	}
	n := 0
	if offset != "" {
		var err error
		if n, err = strconv.Atoi(offset); err != nil || offset[0] != '+' && offset[0] != '-' {
			return "", false
		}
	}
	if n += base; n < sigRTMin || n > sigRTMax {
		return "", false
	}
	return realTime(n), true
}

// realTime counts from the nearer end, as the CRI does.
func realTime(n int) string {
	switch {
	case n == sigRTMin:
		return "SIGRTMIN"
	case n == sigRTMax:
		return "SIGRTMAX"
	case n-sigRTMin <= 15:
		return "SIGRTMIN+" + strconv.Itoa(n-sigRTMin)
	}
	return "SIGRTMAX-" + strconv.Itoa(sigRTMax-n)
}
