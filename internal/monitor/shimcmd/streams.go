package shimcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/taskapi"
)

// streams connect what this process has for input and output with FIFOs that the
// shim opens.
type streams struct {
	paths  taskapi.Stdio
	tty    *terminal // nil without one
	source *os.File  // what is copied to input; nil for none
	input  *os.File  // a FIFO, open for reading and writing, so that a write never fails
	output []output
	copies sync.WaitGroup // of output
}

// output is one FIFO that is copied. The end for writing is held until nothing
// more can come, because a reader that is alone sees an end.
type output struct {
	from, hold, to *os.File
}

// openStreams makes the FIFOs that are needed.
func (t *task) openStreams() (*streams, error) {
	s := &streams{}
	if err := s.open(t); err != nil {
		return nil, fmt.Errorf("connect input and output: %w", err)
	}
	return s, nil
}

func (s *streams) open(t *task) (err error) {
	folder := t.folder()
	if t.who.Exec != "" {
		folder = filepath.Dir(t.process)
	}
	if t.consoleSocket != "" {
		if s.tty, err = openTerminal(t.consoleSocket); err != nil {
			return err
		}
		s.paths.Terminal = true
		if s.paths.Out, err = s.copyOutput(filepath.Join(folder, "out"), s.tty.slave); err != nil {
			return err
		}
		return s.copyInput(filepath.Join(folder, "in"), s.tty.slave)
	}
	if isPipe(os.Stdin) {
		if err := s.copyInput(filepath.Join(folder, "in"), os.Stdin); err != nil {
			return err
		}
	}
	if t.who.Exec == "" && t.detach {
		// The monitor's own, which it copies to the log.
		s.paths.Out, s.paths.Err = filepath.Join(t.bundle, "io", "stdout"), filepath.Join(t.bundle, "io", "stderr")
		return nil
	}
	if s.paths.Out, err = s.copyOutput(filepath.Join(folder, "out"), os.Stdout); err != nil {
		return err
	}
	s.paths.Err, err = s.copyOutput(filepath.Join(folder, "err"), os.Stderr)
	return err
}

// isPipe tells whether input comes from somebody, and not from the null device.
func isPipe(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice == 0
}

func (s *streams) copyInput(path string, from *os.File) (err error) {
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return &os.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	s.paths.In, s.source = path, from
	s.input, err = os.OpenFile(path, os.O_RDWR, 0)
	return err
}

func (s *streams) copyOutput(path string, to *os.File) (string, error) {
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return "", &os.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	from, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	hold, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return "", errors.Join(err, from.Close())
	}
	s.output = append(s.output, output{from, hold, to})
	return path, nil
}

// copy begins to copy. ended is called when there is no more input.
func (s *streams) copy(ended func()) {
	for _, o := range s.output {
		s.copies.Go(func() {
			if _, err := io.Copy(o.to, o.from); err != nil {
				_, _ = io.Copy(io.Discard, o.from) // whoever read it has gone
			}
		})
	}
	if s.input == nil {
		return
	}
	go func() {
		_, _ = io.Copy(s.input, s.source) // nobody hears of an error, and the input ends
		if s.tty == nil {
			_ = s.input.Close()
			ended()
		}
	}()
}

// drainLimit bounds the wait for output that somebody may still hold open.
const drainLimit = 2 * time.Second

// drain waits until all that an ended process has written is copied.
func (s *streams) drain() {
	for _, o := range s.output {
		_ = o.hold.Close()
	}
	copied := make(chan struct{})
	go func() {
		s.copies.Wait()
		close(copied)
	}()
	select {
	case <-copied:
	case <-time.After(drainLimit):
	}
}

// resize gives the process a terminal of the size that the monitor's has.
func (t *task) resize(ctx context.Context) {
	if t.io.tty == nil {
		return
	}
	if w, h := t.io.tty.size(); w != 0 && h != 0 {
		_ = t.record.ResizePty(ctx, t.who, w, h) // as with a process that has ended
	}
}
