package v1alpha1

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

	"github.com/pelletier/go-toml/v2"
)

// maxFile is the largest configuration file that is read, in bytes.
const maxFile = 1 << 20

// DefaultPaths are where configuration is looked for when Load is given none:
// a file, and a directory of more.
func DefaultPaths() []string {
	return []string{"/etc/fairlead/config.toml", "/etc/fairlead/conf.d"}
}

// Load is Default, changed by the files that paths name, in that order: a later
// value replaces an earlier one, tables are merged, lists are replaced. A
// directory stands for its *.toml files in lexical order. With no paths,
// DefaultPaths are read as far as they exist; a path that is given has to
// exist. The result is not validated yet, because flags may follow; every
// mistake in the files is in the error, as *Error values that errors.Join has
// joined.
func Load(paths ...string) (*Config, error) {
	optional := len(paths) == 0
	if optional {
		paths = DefaultPaths()
	}
	c := Default()
	var failed []error
	for _, path := range paths {
		files, err := expand(path)
		if optional && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("read configuration: %w", err))
		}
		for _, file := range files {
			failed = append(failed, c.readFile(file))
		}
	}
	if err := errors.Join(failed...); err != nil {
		return nil, err
	}
	return c, nil
}

// expand lists the files that a path stands for.
func expand(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path) // sorted by name
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".toml") && !strings.HasPrefix(e.Name(), ".") {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	return files, nil
}

func (c *Config) readFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	return c.merge(path, data)
}

// merge changes c by one file. After an error c is of no use.
func (c *Config) merge(file string, data []byte) error {
	if len(data) > maxFile {
		return &Error{File: file, Msg: fmt.Sprintf("is larger than %d bytes; that is no configuration file", maxFile)}
	}
	handlers := c.Handlers
	c.Handlers = nil // so that a handler is never put together from two files
	decoder := toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields()
	if err := decoder.Decode(c); err != nil {
		return explain(file, data, err)
	}
	set := positions(data)
	var twice []error
	for name, h := range handlers {
		if _, again := c.Handlers[name]; again {
			key := "handlers." + name
			twice = append(twice, &Error{
				File: file, Line: set[key], Key: key,
				Msg: fmt.Sprintf("the handler is in %s already; a handler is described in one file", c.origins[key]),
			})
			continue
		}
		if c.Handlers == nil {
			c.Handlers = map[string]Handler{}
		}
		c.Handlers[name] = h
	}
	if c.origins == nil {
		c.origins = map[string]place{}
	}
	for key, line := range set {
		c.origins[key] = place{file, line}
	}
	slices.SortFunc(twice, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(twice...)
}

func (p place) String() string {
	if p.line == 0 {
		return p.file
	}
	return fmt.Sprintf("%s:%d", p.file, p.line)
}
