package cli

import (
	"context"
	"io"
)

// leaving does something that nothing can interrupt, such as reading a pipe
// that nobody writes to, until it is done or ctx ends. In the latter case it is
// left behind: the process is about to end.
func leaving[T any](ctx context.Context, do func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		value, err := do()
		done <- answer{value, err}
	}()
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, errInterrupted
	}
}

// leavingReader is r with reads that end with ctx.
func leavingReader(ctx context.Context, r io.Reader) io.Reader {
	return readFunc(func(p []byte) (int, error) {
		// What is left behind must not write into the caller's buffer.
		data, err := leaving(ctx, func() ([]byte, error) {
			buffer := make([]byte, len(p))
			n, err := r.Read(buffer)
			return buffer[:n], err
		})
		return copy(p, data), err
	})
}

// readFunc is a function as a reader.
type readFunc func(p []byte) (int, error)

// Read implements io.Reader.
func (f readFunc) Read(p []byte) (int, error) { return f(p) }
