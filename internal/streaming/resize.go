package streaming

import (
	"encoding/json"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxSize is the longest JSON of one size, far above any real one.
const maxSize = 1 << 10

// readSizes calls apply for each size that the client sends. What is no size
// ends it, but is read to its end.
func readSizes(r io.Reader, apply func(width, height uint16)) {
	limited := &io.LimitedReader{R: r, N: maxSize}
	dec := json.NewDecoder(limited)
	for {
		var size struct{ Width, Height uint16 }
		if err := dec.Decode(&size); err != nil {
			_, _ = io.Copy(io.Discard, r)
			return
		}
		limited.N = maxSize
		if size.Width > 0 && size.Height > 0 {
			apply(size.Width, size.Height)
		}
	}
}

// setSize tells a terminal, by its master end, how large the client's window
// is. There is nobody to tell if that fails.
func setSize(master *os.File, width, height uint16) {
	raw, err := master.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height})
	})
}
