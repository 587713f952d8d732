package logs

import (
	"bytes"
	"io"
	"os"
)

// tailOffset finds where the last n lines start, reading backwards. Parts of
// one line count as one: a line starts after a record that is not partial.
func tailOffset(f *os.File, n int) (int64, error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || n == 0 {
		return size, err
	}
	const block = 64 << 10
	var held []byte // from the end of what was looked at back to offset at
	for at := size; at > 0; {
		step := min(int64(block), at)
		at -= step
		chunk := make([]byte, step, step+int64(len(held)))
		if _, err := f.ReadAt(chunk, at); err != nil {
			return 0, err
		}
		held = append(chunk, held...)
		if start, ok := lastLines(held, n, at == 0); ok {
			return at + int64(start), nil
		}
	}
	return 0, nil
}

// lastLines finds where the last n lines of b start. Unless whole, the first
// record of b may be cut and does not count.
func lastLines(b []byte, n int, whole bool) (int, bool) {
	var starts []int // of lines
	first := true
	for at := 0; at < len(b); {
		end := bytes.IndexByte(b[at:], '\n')
		if end < 0 {
			end = len(b) - at - 1
		}
		cut := at == 0 && !whole
		if first && !cut {
			starts = append(starts, at)
		}
		if !cut {
			first = true
			if e, err := parse(b[at : at+end]); err == nil && e.partial {
				first = false
			}
		} else {
			first = true // unknown, so the count may stop within a line at worst
		}
		at += end + 1
	}
	if len(starts) < n || (!whole && len(starts) == n) {
		return 0, false
	}
	return starts[len(starts)-n], true
}
