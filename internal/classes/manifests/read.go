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

	"fairlead.run/internal/errdefs"
)

// MaxSize bounds one file, in bytes.
const MaxSize = 32 << 20

// Read reads files, folders with all that is below them, and for "-" stdin. Of
// folders it takes files that end in .yaml, .yml or .json; hidden folders, as
// .git, it leaves out.
func Read(paths []string, stdin io.Reader) (*Set, error) {
	s := &Set{}
	for _, path := range paths {
		if path == "-" {
			data, err := bounded(stdin)
			if err != nil {
				return nil, fmt.Errorf("read standard input: %w", err)
			}
			s.Add("standard input", data)
			continue
		}
		if err := s.walk(path); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *Set) walk(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("read manifests: %w", err)
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir() || path != root && !manifest(path):
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("read manifests: %w", err)
		}
		data, err := bounded(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		s.Add(path, data)
		return nil
	})
}

func manifest(path string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(path)))
}

func bounded(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	if err == nil && len(data) > MaxSize {
		err = fmt.Errorf("it is larger than %d MiB: %w", MaxSize>>20, errdefs.ErrInvalidArgument)
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

// split cuts a file at its "---" lines.
func split(data []byte) []chunk {
	var out []chunk
	now := chunk{line: 1}
	line := 0
	for text := range bytes.Lines(data) {
		line++
		if separates(text) {
			out = append(out, now)
			now = chunk{line: line}
		}
		now.text = append(now.text, text...)
	}
	return slices.DeleteFunc(append(out, now), func(c chunk) bool { return blank(c.text) })
}

func separates(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	return ok && (len(rest) == 0 || bytes.ContainsAny(rest[:1], "\n\r \t"))
}

func blank(text []byte) bool {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("---")))
		if len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}
