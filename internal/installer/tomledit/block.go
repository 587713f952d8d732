package tomledit

import (
	"bytes"
	"fmt"

	"fairlead.run/internal/errdefs"
)

// Blocks begin and end with these comments, and the name of the block. One whose
// file ended without the end of a line says so, as that end is taken out with it.
const (
	begin  = "# fairlead: begin "
	end    = "# fairlead: end "
	note   = " (written by fairlead install; what is changed here is put back)"
	joined = " (joined)"
)

// HasBlock says whether a file has the block.
func HasBlock(data []byte, name string) bool {
	from, _ := find(data, begin+name)
	return from >= 0
}

// AddBlock appends a block, which is complete lines. A block of that name that is
// there already is replaced where it stands.
func AddBlock(file string, data []byte, name, body string) ([]byte, error) {
	from, to, err := span(file, data, name)
	if err != nil {
		return nil, err
	}
	if from >= 0 {
		_, first := find(data, begin+name)
		head := data[from:first]
		return splice(data, from, to, append(bytes.Clone(head), body+end+name+"\n"...)), nil
	}
	mark := begin + name + note
	if len(data) > 0 && data[len(data)-1] != '\n' {
		mark = "\n" + begin + name + joined + note
	}
	return append(bytes.Clone(data), mark+"\n"+body+end+name+"\n"...), nil
}

// CutBlock takes a block out. A file without it is as before.
func CutBlock(file string, data []byte, name string) ([]byte, error) {
	from, to, err := span(file, data, name)
	if err != nil || from < 0 {
		return data, err
	}
	_, first := find(data, begin+name)
	if !bytes.Contains(data[from:first], []byte(joined)) {
		return splice(data, from, to, nil), nil
	}
	rest := data[to:]
	switch {
	case len(rest) == 0:
		return bytes.Clone(data[:from-1]), nil
	case bytes.HasPrefix(rest, []byte(begin)):
		// The next block inherits the end of the line.
		at := to + bytes.Index(rest, []byte(note))
		out := splice(data, at, at, []byte(joined))
		return splice(out, from, to, nil), nil
	}
	return splice(data, from, to, nil), nil // somebody has gone on behind it
}

// span is where a block begins and what is behind it; -1 if there is none. Half of
// one is refused, as what belongs to it can no longer be told.
func span(file string, data []byte, name string) (int, int, error) {
	from, _ := find(data, begin+name)
	last, to := find(data, end+name)
	switch {
	case from < 0 && last < 0:
		return -1, -1, nil
	case from < 0 || last < from:
		return -1, -1, fmt.Errorf("edit %s: of the block %s only one of the lines that begin with %q and %q is left; put the other one back, or take out what belongs to the block: %w", file, name, begin+name, end+name, errdefs.ErrPrecondition)
	}
	return from, to, nil
}

// find is where the line that begins with a mark begins and ends, or -1.
func find(data []byte, mark string) (int, int) {
	for at := 0; at < len(data); {
		stop := lineEnd(data, at)
		line := data[at:stop]
		if rest, ok := bytes.CutPrefix(line, []byte(mark)); ok && (len(rest) == 0 || rest[0] == '\n' || rest[0] == '\r' || rest[0] == ' ') {
			return at, stop
		}
		at = stop
	}
	return -1, -1
}

func splice(data []byte, from, to int, in []byte) []byte {
	out := make([]byte, 0, len(data)-(to-from)+len(in))
	out = append(out, data[:from]...)
	out = append(out, in...)
	return append(out, data[to:]...)
}
