package logs

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Stamp is the form of the time in the name of a file that was rotated away:
// "0.log.20260102-030405". Names sort as times do.
const Stamp = "20060102-150405"

// What stands behind the time.
const (
	Compressed = ".gz"
	Unfinished = ".tmp" // of a compression
)

// Rotated is a file that a log was written to before.
type Rotated struct {
	Path       string
	Stamp      string
	Compressed bool
}

// ListRotated lists what was rotated away from the log at path, oldest first.
// One that is there twice, because its compression was cut off before the end,
// is listed as it was written.
func ListRotated(path string) ([]Rotated, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list what log %s was before: %w", path, err)
	}
	var out []Rotated
	for _, e := range entries {
		stamp, ok := strings.CutPrefix(e.Name(), filepath.Base(path)+".")
		if !ok {
			continue
		}
		stamp, zipped := strings.CutSuffix(stamp, Compressed)
		if _, err := time.Parse(Stamp, stamp); err == nil {
			out = append(out, Rotated{filepath.Join(filepath.Dir(path), e.Name()), stamp, zipped})
		}
	}
	slices.SortFunc(out, func(a, b Rotated) int {
		return cmp.Or(cmp.Compare(a.Stamp, b.Stamp), cmp.Compare(len(a.Path), len(b.Path)))
	})
	return slices.CompactFunc(out, func(a, b Rotated) bool { return a.Stamp == b.Stamp }), nil
}

// open reads the file as it was written.
func (f Rotated) open() (io.ReadCloser, error) {
	file, err := openFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) && !f.Compressed { // since it was listed it was compressed
		f.Compressed = true
		file, err = openFile(f.Path + Compressed)
	}
	if err != nil {
		return nil, err
	}
	if !f.Compressed {
		return file, nil
	}
	z, err := gzip.NewReader(file)
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{z, file}, nil
}

// same says whether it is an open file.
func (f Rotated) same(open *os.File) bool {
	a, err := os.Lstat(f.Path)
	if err != nil {
		return false
	}
	b, err := open.Stat()
	return err == nil && os.SameFile(a, b)
}

// passed notes which of the rotated files the open one is, when the path names
// another by now. It may have been compressed meanwhile: then it is the first
// after those that were there before.
func (r *reader) passed() error {
	list, err := ListRotated(r.path)
	if err != nil {
		return err
	}
	for _, f := range list {
		if f.Stamp > r.newest && (f.Compressed || f.same(r.file)) {
			r.newest = f.Stamp
			return nil
		}
	}
	return nil
}

// place finds what lies between the file that was read before and the one that
// was opened now, and reads it. At the start nothing does, unless it was asked
// for.
func (r *reader) place(opened *os.File) error {
	list, err := ListRotated(r.path)
	if err != nil {
		return err
	}
	for i, f := range list {
		if !f.Compressed && f.same(opened) { // rotated since it was opened
			list = list[:i]
			break
		}
	}
	if !r.started && !r.options.Rotated {
		if len(list) > 0 {
			r.newest = list[len(list)-1].Stamp
		}
		return nil
	}
	if !r.started {
		if list, err = r.fromTail(list, opened); err != nil {
			return err
		}
	}
	for _, f := range list {
		if f.Stamp <= r.newest {
			continue
		}
		if err := r.whole(f); err != nil {
			return err
		}
		r.newest = f.Stamp
	}
	return nil
}

// whole reads a file that nobody writes to any more.
func (r *reader) whole(f Rotated) error {
	from, err := f.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // one too many: it was removed
	}
	if err != nil {
		return fmt.Errorf("read log %s: %w", f.Path, err)
	}
	defer func() { _ = from.Close() }()
	r.buf = bufio.NewReaderSize(from, block)
	if err := r.drain(); err != nil {
		return err
	}
	return r.cutOff()
}

// cutOff takes the last record of a file even if its end is missing.
func (r *reader) cutOff() error {
	last := r.pending
	r.pending, r.skip = nil, false
	if len(last) == 0 {
		return nil
	}
	return r.record(last)
}

// fromTail leaves out what the last lines do not reach back to.
func (r *reader) fromTail(list []Rotated, current *os.File) ([]Rotated, error) {
	left := r.options.Tail
	if left < 0 || len(list) == 0 {
		return list, nil
	}
	if enough, err := r.reached(current); enough || err != nil {
		r.newest = list[len(list)-1].Stamp
		return nil, err
	}
	n, err := countLines(current, r.options.Stream)
	if err != nil {
		return nil, fmt.Errorf("count the lines of log %s: %w", r.path, err)
	}
	if _, err := current.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	left -= n
	start := len(list)
	for start > 0 && left > 0 {
		start--
		from, err := list[start].open()
		if err != nil {
			return nil, fmt.Errorf("read log %s: %w", list[start].Path, err)
		}
		n, err := countLines(from, r.options.Stream)
		_ = from.Close()
		if err != nil {
			return nil, fmt.Errorf("count the lines of log %s: %w", list[start].Path, err)
		}
		left -= n
	}
	if left < 0 && start < len(list) {
		r.leave = -left
	}
	if start > 0 {
		r.newest = list[start-1].Stamp
	}
	return list[start:], nil
}

// reached says whether the last lines begin within a file, without reading all
// of it.
func (r *reader) reached(current *os.File) (bool, error) {
	info, err := current.Stat()
	if err != nil {
		return false, fmt.Errorf("look at log %s: %w", r.path, err)
	}
	at, err := tailOffset(current, info.Size(), r.options)
	if err != nil {
		return false, fmt.Errorf("find the end of log %s: %w", r.path, err)
	}
	return at > 0, nil
}

// countLines counts the records that end a line, of one stream or of both.
func countLines(from io.Reader, stream string) (n int, err error) {
	buf := bufio.NewReaderSize(from, block)
	begin := true // of a record
	whole := true
	for {
		part, err := buf.ReadSlice('\n')
		if begin && len(part) > 0 {
			e, bad := parse(part)
			if bad != nil {
				e = entry{stream: broken}
			}
			whole = !e.partial && (stream == "" || stream == e.stream)
		}
		begin = err == nil
		switch {
		case err == nil && whole:
			n++
		case errors.Is(err, io.EOF):
			if len(part) > 0 && whole {
				n++
			}
			return n, nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return n, err
		}
	}
}
