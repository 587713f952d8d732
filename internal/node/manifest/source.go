package manifest

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fairlead.run/internal/errdefs"
)

// MaxSize bounds one file, and standard input.
const MaxSize = 10 << 20

// Source is the text of one manifest file.
type Source struct {
	Name string // as errors show it
	Data []byte
}

// Read reads files, folders and, for the path "-", stdin. Of a folder it takes
// the files that end in .yaml, .yml or .json, by name, and nothing below it.
//
// When ctx ends, Read returns its error at once. A read that waits for the
// writer of a pipe cannot be interrupted; it is left behind, and what it reads
// is dropped. So ctx should not end before the process is about to.
func Read(ctx context.Context, paths []string, stdin io.Reader) ([]Source, error) {
	type answer struct {
		sources []Source
		err     error
	}
	done := make(chan answer, 1)
	go func() {
		sources, err := readAll(paths, stdin)
		done <- answer{sources, err}
	}()
	select {
	case a := <-done:
		return a.sources, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("read manifests: %w", context.Cause(ctx))
	}
}

func readAll(paths []string, stdin io.Reader) ([]Source, error) {
	var out []Source
	seenStdin := false
	for _, p := range paths {
		if p == "-" {
			if seenStdin {
				return nil, fmt.Errorf("read manifests: - (standard input) is given twice: %w", errdefs.ErrInvalidArgument)
			}
			seenStdin = true
			data, err := readLimited(stdin, "standard input")
			if err != nil {
				return nil, err
			}
			out = append(out, Source{"standard input", data})
			continue
		}
		more, err := readPath(p)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

func readPath(p string) ([]Source, error) {
	if strings.HasPrefix(p, "http://") || strings.HasPrefix(p, "https://") {
		return nil, invalid("read manifest %s: addresses are not read, only files; fetch it first: curl -fsSL '%s' | fairlead run -f -", p, p)
	}
	info, err := os.Stat(p)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	if !info.IsDir() {
		s, err := readFile(p)
		return []Source{s}, err
	}
	entries, err := os.ReadDir(p)
	if err != nil {
		return nil, fmt.Errorf("read manifest folder: %w", err)
	}
	var out []Source
	for _, e := range entries { // ReadDir sorts by name
		if e.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(e.Name()))) {
			continue
		}
		s, err := readFile(filepath.Join(p, e.Name()))
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("read manifest folder %s: it has no .yaml, .yml or .json file: %w", p, errdefs.ErrNotFound)
	}
	return out, nil
}

func readFile(p string) (Source, error) {
	f, err := os.Open(p)
	if err != nil {
		return Source{}, fmt.Errorf("read manifest: %w", err)
	}
	defer func() { _ = f.Close() }()
	data, err := readLimited(f, p)
	return Source{p, data}, err
}

func readLimited(r io.Reader, name string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read manifest %s: %w", name, err)
	}
	if len(data) > MaxSize {
		return nil, fmt.Errorf("read manifest %s: it is larger than %d MiB: %w", name, MaxSize>>20, errdefs.ErrInvalidArgument)
	}
	return data, nil
}
