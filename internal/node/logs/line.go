package logs

import (
	"bytes"
	"fmt"
	"time"
)

// Line is one line of output. Text has no line break.
type Line struct {
	Time   time.Time // of the first part
	Stream string    // "stdout" or "stderr"
	Text   []byte
	// Partial says that the process had not ended the line when it was cut.
	Partial bool
}

// maxLine is where a line that never ends is cut.
const maxLine = 1 << 20

// entry is one record of the file: "TIME STREAM TAGS TEXT".
type entry struct {
	time    time.Time
	stream  string
	partial bool
	text    []byte
}

func parse(raw []byte) (entry, error) {
	raw = bytes.TrimSuffix(raw, []byte("\n"))
	stamp, rest, ok1 := bytes.Cut(raw, []byte(" "))
	stream, rest, ok2 := bytes.Cut(rest, []byte(" "))
	tags, text, _ := bytes.Cut(rest, []byte(" "))
	if !ok1 || !ok2 {
		return entry{}, fmt.Errorf("log record %.80q is not in the form of the CRI", raw)
	}
	t, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return entry{}, fmt.Errorf("log record %.80q starts with no time", raw)
	}
	if s := string(stream); s != "stdout" && s != "stderr" {
		return entry{}, fmt.Errorf("log record %.80q names no stream", raw)
	}
	tag, _, _ := bytes.Cut(tags, []byte(":"))
	return entry{t, string(stream), string(tag) == "P", text}, nil
}

// joiner puts parts together, one line per stream.
type joiner struct {
	open map[string]*Line
}

// add takes a record and returns a line if one is complete.
func (j *joiner) add(e entry) *Line {
	if j.open == nil {
		j.open = map[string]*Line{}
	}
	line := j.open[e.stream]
	if line == nil {
		line = &Line{Time: e.time, Stream: e.stream}
	}
	line.Text = append(line.Text, e.text...)
	if e.partial && len(line.Text) < maxLine {
		j.open[e.stream] = line
		return nil
	}
	delete(j.open, e.stream)
	line.Partial = e.partial
	return line
}

// rest gives up what was never completed, stdout first.
func (j *joiner) rest() []*Line {
	var out []*Line
	for _, stream := range []string{"stdout", "stderr"} {
		if line := j.open[stream]; line != nil {
			line.Partial = true
			out = append(out, line)
		}
	}
	j.open = nil
	return out
}
