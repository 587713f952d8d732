// Package crilog writes container output in the log format of the CRI, which
// kubelet and crictl read:
//
//	2026-01-02T15:04:05.000000000Z stdout F a whole line
//	2026-01-02T15:04:05.000000000Z stderr P a part of a line
//
// A line longer than the limit becomes parts (P) and a last one (F). What
// follows the last newline when the output ends is a part too, so that a
// reader that joins parts gets exactly the bytes that were written.
//
// The package does not read output, rotate or delete; kubelet does the latter
// and then asks for the file to be opened again.
package crilog

// Stream is where a line was written.
type Stream byte

// The streams.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

// String returns the name that the format uses.
func (s Stream) String() string {
	if s == Stderr {
		return "stderr"
	}
	return "stdout"
}
