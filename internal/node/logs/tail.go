package logs

import (
	"bytes"
	"io"
)

const (
	// block is how much is read at a time while looking for the end.
	block = 64 << 10
	// head is as much of a record as says what it is.
	head = 128
)

// tailOffset finds where the last n lines start, reading backwards. With a
// stream only its lines count. Records of one line count as one, and so do
// those of a line that is not at its end. However long the file is and however
// many lines are wanted, it takes the memory of a block.
func tailOffset(f io.ReaderAt, size int64, o Options) (int64, error) {
	if o.Tail == 0 {
		return size, nil
	}
	count := counter{want: o.Tail, stream: o.Stream, start: size}
	buf := make([]byte, block+head)
	var after [head]byte // what follows the block
	follows := 0
	for end := size; end > 0; {
		at := max(0, end-block)
		step := int(end - at)
		if _, err := f.ReadAt(buf[:step], at); err != nil {
			return 0, err
		}
		b := append(buf[:step], after[:follows]...)
		// A record starts after a line break, but not at the end of the file.
		for i := bytes.LastIndexByte(b[:step], '\n'); i >= 0; i = bytes.LastIndexByte(b[:i], '\n') {
			start := at + int64(i) + 1
			if start < size && count.add(b[i+1:], start) {
				return count.start, nil
			}
		}
		follows = copy(after[:], b)
		if at == 0 && count.add(b, 0) {
			return count.start, nil
		}
		end = at
	}
	return 0, nil
}

// counter counts lines from the last to the first.
type counter struct {
	want   int
	stream string
	seen   int
	start  int64 // of the first record of the lines that were counted
}

// add takes the record before those that it has seen. It says whether the lines
// are complete, so that this one does not belong to them.
func (c *counter) add(b []byte, start int64) bool {
	b = b[:min(len(b), head)]
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		b = b[:i]
	}
	e, err := parse(b)
	if err != nil {
		e = entry{stream: broken} // read shows it as it is
	}
	if c.stream != "" && e.stream != c.stream {
		return false
	}
	if !e.partial || c.seen == 0 {
		c.seen++
	}
	if c.seen > c.want {
		return true
	}
	c.start = start
	return false
}
