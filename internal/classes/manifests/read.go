package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"fairlead.run/internal/errdefs"
)

// What is read at most, in bytes: of one file, and of all. One list of pods in YAML
// of the largest size was seen to take 2.4 GB while it was read and looked at.
const (
	MaxSize  = 32 << 20
	MaxTotal = 128 << 20
)

// Read reads files, folders with all that is below them, and for "-" stdin. Of
// folders it takes files that end in .yaml, .yml or .json. It leaves out what is
// hidden, as .git, and does not follow links to folders.
//
// A path that cannot be read is an error; what is below a folder and cannot be
// read is a Fault.
func Read(paths []string, stdin io.Reader) (*Set, error) {
	r := &reader{set: &Set{}, seen: map[string]bool{}}
	for _, path := range paths {
		if path == "-" {
			data, err := bounded(stdin)
			if err != nil {
				return nil, fmt.Errorf("read standard input: %w", err)
			}
			r.set.Add("standard input", data)
			continue
		}
		if err := r.walk(path); err != nil {
			return nil, err
		}
	}
	return r.set, nil
}

type reader struct {
	set   *Set
	seen  map[string]bool // files, by their path without links: each is read once
	total int
}

func (r *reader) walk(root string) error {
	info, err := os.Stat(root)
	if err != nil {
		return fmt.Errorf("read manifests: %w", err)
	}
	if !info.IsDir() {
		if err := r.file(root, os.O_RDONLY); err != nil {
			return fmt.Errorf("read %s: %w", root, err)
		}
		return nil
	}
	// With a separator behind it a link to a folder is that folder.
	return filepath.WalkDir(root+string(filepath.Separator), func(path string, d fs.DirEntry, err error) error {
		path = filepath.Clean(path)
		inside := path != filepath.Clean(root)
		switch {
		case err != nil && !inside:
			return fmt.Errorf("read manifests: %w", err)
		case err != nil:
			r.fault(path, err)
			return nil
		case inside && strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir() || !manifest(path):
			return nil
		}
		// Opening a FIFO would wait for a writer.
		err = r.file(path, os.O_RDONLY|syscall.O_NONBLOCK)
		if errors.Is(err, errTotal) {
			return err
		}
		if err != nil {
			r.fault(path, err)
		}
		return nil
	})
}

func (r *reader) fault(path string, err error) {
	var of *fs.PathError
	if errors.As(err, &of) {
		err = of.Err // the path is told anyway
	}
	message := strings.TrimSuffix(err.Error(), ": "+errdefs.ErrInvalidArgument.Error())
	r.set.Faults = append(r.set.Faults, Fault{File: path, Line: 1, Message: "cannot be read: " + message})
}

var errTotal = fmt.Errorf("there are more than %d MiB of manifests; look at parts of them: %w", MaxTotal>>20, errdefs.ErrInvalidArgument)

// file reads a file, unless it has been read under another name.
func (r *reader) file(path string, flags int) error {
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // which was only read
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case flags != os.O_RDONLY && info.IsDir():
		return nil // a link to one
	case flags != os.O_RDONLY && !info.Mode().IsRegular():
		return fmt.Errorf("it is no regular file: %w", errdefs.ErrInvalidArgument)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil && info.Mode().IsRegular() {
		if real, err = filepath.Abs(real); err == nil && r.seen[real] {
			return nil
		}
		r.seen[real] = true
	}
	data, err := bounded(f)
	if err != nil {
		return err
	}
	if r.total += len(data); r.total > MaxTotal {
		return errTotal
	}
	r.set.Add(path, data)
	return nil
}

func manifest(path string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(path)))
}

var errLarge = fmt.Errorf("it is larger than %d MiB: %w", MaxSize>>20, errdefs.ErrInvalidArgument)

func bounded(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	if err == nil && len(data) > MaxSize {
		err = errLarge
	}
	return data, err
}

// chunk is the text of one document, and the line of the file that it begins at.
type chunk struct {
	text []byte
	line int // from 1
}

// last is the line of the file that it ends at.
func (c chunk) last() int { return c.line + bytes.Count(c.text, []byte("\n")) }

// first is the line of the file that its first value is in.
func (c chunk) first() int {
	n := c.line
	for line := range bytes.Lines(c.text) {
		if !blank(line) {
			break
		}
		n++
	}
	return min(n, c.last())
}

// split cuts a file at its "---" and "..." lines, and yields the parts that have
// more than comments.
func split(data []byte, yield func(chunk)) {
	now, begin, at, line := chunk{line: 1}, 0, 0, 0
	full, ended := false, false
	for text := range bytes.Lines(data) {
		line++
		if ended || marks(text, "---") {
			if now.text = data[begin:at]; full {
				yield(now)
			}
			now, begin, full = chunk{line: line}, at, false
		}
		ended, full = marks(text, "..."), full || !blank(text)
		at += len(text)
	}
	if now.text = data[begin:]; full {
		yield(now)
	}
}

// marks says that a line begins or ends a document.
func marks(line []byte, mark string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(mark))
	return ok && (len(rest) == 0 || bytes.ContainsAny(rest[:1], "\n\r \t"))
}

// blank says that a line has no value: it is empty, a comment, a directive, or
// begins or ends a document.
func blank(line []byte) bool {
	for _, mark := range []string{"---", "..."} {
		if marks(line, mark) {
			line = line[len(mark):]
		}
	}
	if bytes.HasPrefix(line, []byte("%")) {
		return true
	}
	line = bytes.TrimSpace(line)
	return len(line) == 0 || line[0] == '#'
}
