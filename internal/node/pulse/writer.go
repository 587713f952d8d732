package pulse

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"fairlead.run/internal/errdefs"
)

// Writer passes on what is written, and knows whether that comes back. A log that nobody
// reads, as a pipe that is full, holds up all who write to it.
type Writer struct {
	To    io.Writer
	began atomic.Pointer[time.Time] // what is being written; nil if nothing is
}

// Write implements io.Writer. It is not called twice at a time, which slog's handlers see to.
func (w *Writer) Write(p []byte) (int, error) {
	w.began.Store(new(time.Now()))
	defer w.began.Store(nil)
	return w.To.Write(p)
}

// Healthy says that nothing has been written for so long that it is stuck.
func (w *Writer) Healthy(context.Context) error {
	began := w.began.Load()
	if began == nil {
		return nil
	}
	if since := time.Since(*began); since > StuckAfter {
		return fmt.Errorf("a line of the log has been written for %s: %w", since.Round(time.Second), errdefs.ErrUnavailable)
	}
	return nil
}
