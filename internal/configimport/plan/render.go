package plan

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"

	config "fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/configimport/tree"
)

// File is one that is to be written, with its path below the folder.
type File struct {
	Path string
	Data []byte
}

// CertsDir is the folder of what registries' mirrors are written to, below the
// folder of the configuration.
const CertsDir = "certs.d"

// Files are config.toml, as it is in the folder, and a hosts.toml for each
// registry. The heading is written above the former, as a comment. An error is
// a mistake of ours: the daemon's decoder refuses what it would read.
func (p *Plan) Files(folder, heading string) ([]File, error) {
	settings := slices.Clone(p.settings)
	hosts := p.hostFiles()
	if len(hosts) > 0 {
		settings = append(settings, setting{"images", "certs_dirs", []string{filepath.Join(folder, CertsDir)}})
	}
	var text writer
	text.comment(heading)
	text.settings(append([]setting{{"", "version", config.Version}}, settings...))
	for _, h := range p.handlers {
		text.handler(h)
	}
	if err := check(text.String()); err != nil {
		return nil, fmt.Errorf("what was put together is no configuration: %w", err)
	}
	return append([]File{{Path: "config.toml", Data: []byte(text.String())}}, hosts...), nil
}

func (p *Plan) hostFiles() []File {
	var out []File
	for _, h := range p.sortedHosts() {
		var text writer
		h.write(&text)
		out = append(out, File{Path: path.Join(CertsDir, h.Name, "hosts.toml"), Data: []byte(text.String())})
	}
	return out
}

// writer writes TOML in the way that a person would.
type writer struct{ strings.Builder }

func (w *writer) comment(text string) {
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		w.WriteString(strings.TrimRight("# "+clean(line), " ") + "\n")
	}
}

// clean takes out what would end a comment, or drive a terminal.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return -1
		}
		return r
	}, text)
}

// table begins a table, with an empty line before.
func (w *writer) table(names ...string) {
	for i := range names {
		names[i] = tree.Quote(names[i])
	}
	if w.Len() > 0 {
		w.WriteString("\n")
	}
	w.WriteString("[" + strings.Join(names, ".") + "]\n")
}

func (w *writer) value(key string, value any) {
	w.WriteString(tree.Quote(key) + " = " + literal(value) + "\n")
}

// settings writes those of the top, then table by table in their order.
func (w *writer) settings(list []setting) {
	var tables []string
	for _, s := range list {
		if !slices.Contains(tables, s.table) {
			tables = append(tables, s.table)
		}
	}
	slices.Sort(tables)
	for _, table := range tables {
		if table != "" {
			w.table(strings.Split(table, ".")...)
		}
		for _, s := range list {
			if s.table == table {
				w.value(s.key, s.value)
			}
		}
	}
}

func (w *writer) handler(h handler) {
	w.table("handlers", h.name)
	for _, f := range h.fields {
		w.value(f.key, f.value)
	}
}

// literal is a value as TOML has it.
func literal(value any) string {
	switch v := value.(type) {
	case string:
		if !strings.ContainsAny(v, "\"\\") && clean(v) == v {
			return `"` + v + `"`
		}
	case config.Rlimit:
		return "{ soft = " + limit(v.Soft) + ", hard = " + limit(v.Hard) + " }"
	case map[string]any:
		var parts []string
		for _, key := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, tree.Quote(key)+" = "+literal(v[key]))
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = literal(v[i])
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case []string:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = literal(v[i])
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	line, err := toml.Marshal(map[string]any{"x": value})
	if err != nil {
		panic(fmt.Sprintf("a value that is no TOML: %v", err)) // all are strings, numbers, truths, or lists and tables of these
	}
	return strings.TrimSpace(strings.TrimPrefix(string(line), "x = "))
}

func limit(l config.Limit) string {
	if l == config.Unlimited {
		return `"unlimited"`
	}
	return l.String()
}
