package usage

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// families are metrics in the text format of Prometheus, which wants the lines
// of one name together.
type families map[string]*family

type family struct {
	help, kind string
	lines      bytes.Buffer
}

// kinds of metrics.
const (
	counterKind = "counter"
	gaugeKind   = "gauge"
)

// family is the one of that name. What it is for is what was said first.
func (f families) family(name, kind, help string) *family {
	have := f[name]
	if have == nil {
		have = &family{help: help, kind: kind}
		f[name] = have
	}
	return have
}

// value is a number as it is written, and when it was so in nanoseconds; 0 means now.
type value struct {
	text string
	at   int64
}

func float(v float64) value { return value{text: strconv.FormatFloat(v, 'g', -1, 64)} }

func whole(v uint64) value { return value{text: strconv.FormatUint(v, 10)} }

func (v value) measured(at int64) value {
	v.at = at
	return v
}

var (
	labelEscaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
	helpEscaper  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
)

// line adds a line. Labels are names and values in turn.
func (f *family) line(name string, v value, labels ...string) {
	f.lines.WriteString(name)
	for i := 0; i+1 < len(labels); i += 2 {
		f.lines.WriteByte("{,"[min(i, 1)])
		f.lines.WriteString(labels[i])
		f.lines.WriteString(`="`)
		_, _ = labelEscaper.WriteString(&f.lines, strings.ToValidUTF8(labels[i+1], "\ufffd"))
		f.lines.WriteByte('"')
	}
	if len(labels) > 1 {
		f.lines.WriteByte('}')
	}
	f.lines.WriteByte(' ')
	f.lines.WriteString(v.text)
	if v.at > 0 {
		f.lines.WriteByte(' ')
		f.lines.WriteString(strconv.FormatInt(v.at/1e6, 10))
	}
	f.lines.WriteByte('\n')
}

// about is what a family is.
type about struct{ name, kind, help string }

// add adds a line to a family.
func (f families) add(a about, v value, labels ...string) {
	f.family(a.name, a.kind, a.help).line(a.name, v, labels...)
}

// write writes all families by their names.
func (f families) write(to io.Writer) error {
	w := bufio.NewWriter(to)
	for _, name := range slices.Sorted(maps.Keys(f)) {
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", name, helpEscaper.Replace(f[name].help), name, f[name].kind)
		if _, err := f[name].lines.WriteTo(w); err != nil {
			return err
		}
	}
	return w.Flush()
}
