package tree

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"fairlead.run/internal/errdefs"
)

// MaxFile is the largest file that is read, in bytes.
const MaxFile = 1 << 20

// Read reads a file. Anything but a regular file is refused, as a pipe would
// not end.
func Read(path string) (*Node, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(data) > MaxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes; that is no configuration file: %w", path, MaxFile, errdefs.ErrInvalidArgument)
	}
	return Parse(path, data)
}

func open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file: %w", path, errdefs.ErrInvalidArgument)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return f, nil
}

// Parse reads the text of a file.
func Parse(file string, data []byte) (*Node, error) {
	var keys map[string]any
	if err := toml.Unmarshal(data, &keys); err != nil {
		var at *toml.DecodeError
		if errors.As(err, &at) {
			row, column := at.Position()
			return nil, fmt.Errorf("%s:%d:%d: %s: %w", file, row, column, strings.TrimPrefix(err.Error(), "toml: "), errdefs.ErrInvalidArgument)
		}
		return nil, fmt.Errorf("%s: %s: %w", file, strings.TrimPrefix(err.Error(), "toml: "), errdefs.ErrInvalidArgument)
	}
	b := builder{file: file, lines: lines(data)}
	top := b.node(keys, "", &Node{})
	if top.Table == nil {
		top.Table = map[string]*Node{}
	}
	top.Size = len(data)
	return top, nil
}

// builder turns what the decoder has made into nodes.
type builder struct {
	file  string
	lines map[string]int // by the path that lines makes
}

// node is v, found at the path, below another.
func (b *builder) node(v any, path string, above *Node) *Node {
	n := &Node{File: b.file, Line: above.Line, Key: above.Key}
	if line, known := b.lines[path]; known {
		n.Line = line
	}
	switch v := v.(type) {
	case map[string]any:
		n.Table = make(map[string]*Node, len(v))
		for name, below := range v {
			key := Quote(name)
			if n.Key != "" {
				key = n.Key + "." + key
			}
			n.Table[name] = b.node(below, path+step(name), &Node{Line: n.Line, Key: key})
		}
	case []any:
		if !allTables(v) {
			n.Value = v
			break
		}
		for i, below := range v {
			n.List = append(n.List, b.node(below, path+element(i), n))
		}
	default:
		n.Value = v
	}
	return n
}

func allTables(list []any) bool {
	for _, v := range list {
		if _, table := v.(map[string]any); !table {
			return false
		}
	}
	return len(list) > 0
}

// step and element are parts of a path that no key can be mistaken for.
func step(name string) string { return "\x00k" + name }

func element(i int) string { return "\x00i" + strconv.Itoa(i) }
