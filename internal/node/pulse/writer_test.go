package pulse

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.run/internal/errdefs"
)

// TestWriter is healthy but while somebody waits for a line to be taken.
func TestWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, in := io.Pipe()
		w := &Writer{To: in}
		if err := w.Healthy(t.Context()); err != nil {
			t.Error(err)
		}
		done := make(chan error)
		go func() {
			_, err := w.Write([]byte("line"))
			done <- err
		}()
		time.Sleep(StuckAfter)
		synctest.Wait()
		if err := w.Healthy(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if err := w.Healthy(t.Context()); !errors.Is(err, errdefs.ErrUnavailable) {
			t.Errorf("a log that is stuck: %v", err)
		}
		if _, err := io.ReadFull(out, make([]byte, 4)); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := w.Healthy(t.Context()); err != nil {
			t.Errorf("a log that goes on: %v", err)
		}
	})
	var text bytes.Buffer
	if n, err := (&Writer{To: &text}).Write([]byte("line")); n != 4 || err != nil || text.String() != "line" {
		t.Errorf("%d, %v: %q", n, err, &text)
	}
}
