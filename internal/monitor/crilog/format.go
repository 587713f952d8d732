package crilog

import (
	"bytes"
	"time"
)

// stampLayout has a fixed width so that the room an entry needs is known; it
// is RFC 3339 with nanoseconds, which is what readers parse.
const stampLayout = "2006-01-02T15:04:05.000000000Z07:00"

// Overhead is the most bytes that an entry has beside its content.
const Overhead = len("2006-01-02T15:04:05.000000000Z stdout P \n")

// Rules say how output becomes entries.
type Rules struct {
	Stream Stream
	At     time.Time
	Max    int  // bytes of a line before it is split
	Flush  bool // an unterminated end is written as a part, not kept
}

// Format appends entries for raw to out, without ever growing out beyond its
// capacity. It returns the entries and how many bytes of raw they cover; what
// is not covered is an unterminated line or did not fit.
func Format(out, raw []byte, r Rules) ([]byte, int) {
	var prefix [Overhead]byte
	head := r.At.UTC().AppendFormat(prefix[:0], stampLayout)
	head = append(head, ' ')
	head = append(head, r.Stream.String()...)
	head = append(head, ' ')
	done := 0
	for done < len(raw) {
		content, used, tag := next(raw[done:], r)
		if used == 0 || len(out)+Overhead+len(content) > cap(out) {
			break
		}
		out = append(out, head...)
		out = append(out, tag, ' ')
		out = append(out, content...)
		out = append(out, '\n')
		done += used
	}
	return out, done
}

// next cuts the first entry off rest: its content, how many bytes it covers
// (zero if it has to wait for more) and its tag.
func next(rest []byte, r Rules) (content []byte, used int, tag byte) {
	window := rest[:min(len(rest), r.Max+1)]
	if end := bytes.IndexByte(window, '\n'); end >= 0 {
		return rest[:end], end + 1, 'F'
	}
	if len(rest) > r.Max {
		return rest[:r.Max], r.Max, 'P'
	}
	if r.Flush {
		return rest, len(rest), 'P'
	}
	return nil, 0, 0
}
