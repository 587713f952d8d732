package logs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Options say what to read.
type Options struct {
	// Tail is how many of the last lines to start with; -1 means all.
	Tail int
	// Stream is "stdout" or "stderr"; "" is both.
	Stream string
	// Rotated starts with what was rotated away before and is still there.
	Rotated bool
	// Since leaves out what was written before.
	Since time.Time
	// Follow goes on at the end of the file until Ended is closed or the context
	// ends.
	Follow bool
	// Ended is closed when nothing more will be written: what is there is still
	// read to its end. Nil means never.
	Ended <-chan struct{}
	// Idle is called when following has nothing more to read for now, so that
	// what was kept back can be passed on. It may be nil.
	Idle func() error
}

// broken is the stream of records that cannot be read.
const broken = "stderr"

// maxRecord is the longest record that is read whole. Runtimes cut at 16 KiB.
const maxRecord = 1 << 20

// Read reads the log at path, and calls each for every line, in order. If each
// returns an error Read ends with it. A file that does not exist yet is waited
// for when following, and has no lines otherwise.
func Read(ctx context.Context, path string, o Options, each func(Line) error) error {
	r := &reader{path: path, options: o, each: each}
	defer r.close()
	if o.Follow {
		r.watch = newWatch(path)
	}
	for {
		// Whether the log has ended is asked before reading: what was written
		// until then is seen by this pass.
		ended := !o.Follow || closed(o.Ended)
		if err := r.pass(); err != nil {
			return err
		}
		if ended {
			return r.finish()
		}
		if o.Idle != nil {
			if err := o.Idle(); err != nil {
				return err
			}
		}
		if err := r.watch.wait(ctx, o.Ended); err != nil {
			return err
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// reader is one Read.
type reader struct {
	path    string
	options Options
	each    func(Line) error
	watch   *watch

	file    *os.File
	buf     *bufio.Reader
	pending []byte // a record whose end is not written yet
	skip    bool   // the rest of a record that is too long
	joiner  joiner
	started bool
	newest  string // stamp of the last rotated file before the open one
	leave   int    // lines to leave out before the first
}

func (r *reader) close() {
	if r.file != nil {
		_ = r.file.Close()
	}
	if r.watch != nil {
		r.watch.close()
	}
}

// pass reads all there is, through any number of rotations.
func (r *reader) pass() error {
	for {
		if r.file == nil {
			if ok, err := r.open(); !ok {
				return err
			}
		}
		rotated := r.rotated()
		if err := r.drain(); err != nil {
			return err
		}
		if !rotated {
			return nil
		}
		// The new file is there. A runtime may still have been about to write to
		// the old one.
		time.Sleep(settle)
		if err := r.drain(); err != nil {
			return err
		}
		if err := r.cutOff(); err != nil {
			return err
		}
		if err := r.passed(); err != nil {
			return err
		}
		_ = r.file.Close()
		r.file = nil
	}
}

// openFile opens a log and nothing else: a container that has the folder of logs
// as a volume could put a link to any file of the node there, or a FIFO, at which
// a reader waits forever.
func openFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("open log %s: it is a symbolic link, which a runtime does not make", path)
	}
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		return nil, errors.Join(fmt.Errorf("open log %s: it is no regular file", path), err)
	}
	return f, nil
}

func (r *reader) open() (bool, error) {
	f, err := openFile(r.path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	r.file = f
	if err := r.place(f); err != nil {
		return false, err
	}
	r.buf = bufio.NewReaderSize(f, block)
	if r.started {
		return true, nil
	}
	r.started = true
	if r.options.Tail >= 0 {
		info, err := f.Stat()
		if err != nil {
			return false, fmt.Errorf("look at log %s: %w", r.path, err)
		}
		at, err := tailOffset(f, info.Size(), r.options)
		if err != nil {
			return false, fmt.Errorf("find the end of log %s: %w", r.path, err)
		}
		if _, err := f.Seek(at, io.SeekStart); err != nil {
			return false, fmt.Errorf("read log %s: %w", r.path, err)
		}
	}
	return true, nil
}

// rotated says whether the path names another file than the open one, or a
// file that was cut.
func (r *reader) rotated() bool {
	now, err := os.Lstat(r.path)
	if err != nil {
		return false // between rename and create: the next event tells
	}
	open, err := r.file.Stat()
	if err != nil {
		return false
	}
	if !os.SameFile(now, open) {
		return true
	}
	at, err := r.file.Seek(0, io.SeekCurrent)
	return err == nil && at > open.Size()
}

// drain reads to the end of the open file.
func (r *reader) drain() error {
	for {
		part, err := r.buf.ReadSlice('\n')
		if use := r.piece(part, err == nil); use != nil {
			return use
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return fmt.Errorf("read log %s: %w", r.path, err)
		}
	}
}

// piece takes what was read of a record. The end may still be missing: because
// it is not written yet, or because the record is longer than the buffer.
func (r *reader) piece(part []byte, end bool) error {
	switch {
	case r.skip:
		r.skip = !end
		return nil
	case end && len(r.pending) == 0:
		return r.record(part)
	}
	r.pending = append(r.pending, part...)
	switch {
	case end:
		whole := r.pending
		r.pending = nil
		return r.record(whole)
	case len(r.pending) > maxRecord:
		r.skip, r.pending = true, nil
	}
	return nil
}

// record handles one record. One that cannot be read (the machine may have
// lost power while it was written) is shown as it is rather than hidden.
func (r *reader) record(raw []byte) error {
	e, err := parse(raw)
	if err != nil {
		e = entry{stream: broken}
	}
	if r.options.Stream != "" && r.options.Stream != e.stream {
		return nil
	}
	if r.leave > 0 {
		if !e.partial {
			r.leave--
		}
		return nil
	}
	if err != nil {
		if raw = bytes.Trim(raw, "\x00\n"); len(raw) == 0 {
			return nil
		}
		return r.each(Line{Stream: broken, Text: bytes.Clone(raw)})
	}
	if e.time.Before(r.options.Since) {
		return nil
	}
	if line := r.joiner.add(e); line != nil {
		return r.each(*line)
	}
	return nil
}

func (r *reader) finish() error {
	if err := r.cutOff(); err != nil {
		return err
	}
	for _, line := range r.joiner.rest() {
		if err := r.each(*line); err != nil {
			return err
		}
	}
	return nil
}
