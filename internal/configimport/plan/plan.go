package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	config "fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/configimport/tree"
)

// Effect is what became of a key.
type Effect string

const (
	// Dropped has no counterpart: what the key did is not done.
	Dropped Effect = "dropped"
	// Changed was taken over, or follows from something else, and does not mean
	// quite the same.
	Changed Effect = "changed"
)

// Finding is one key that did not go over as it was.
type Finding struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Key    string `json:"key"`
	Effect Effect `json:"effect"`
	Why    string `json:"why"`
}

// Plan is what an import has come to.
type Plan struct {
	Findings []Finding

	settings []setting
	handlers []handler
	hosts    map[string]*Host
}

// setting is a key of Fairlead's with its value.
type setting struct {
	table, key string
	value      any
}

type handler struct {
	name   string
	fields []setting // whose table is empty
}

// Field is a key of a handler that is to be set, and where its value is from.
type Field struct {
	Key   string
	Value any
	From  *tree.Node
}

// Note adds a finding about a key; from may be nil for what no file says.
func (p *Plan) Note(from *tree.Node, effect Effect, why string, args ...any) {
	f := Finding{Effect: effect, Why: fmt.Sprintf(why, args...)}
	if from != nil {
		f.File, f.Line, f.Key = from.File, from.Line, from.Key
	}
	p.Findings = append(p.Findings, f)
}

// Set sets a key, "network.conf_dir", unless the value is one that Fairlead
// refuses; then the key that it is from is dropped with that reason.
func (p *Plan) Set(key string, value any, from *tree.Node) {
	table, name := "", key
	if i := strings.LastIndexByte(key, '.'); i >= 0 {
		table, name = key[:i], key[i+1:]
	}
	s := setting{table, name, value}
	var text writer
	text.settings([]setting{s})
	if err := check(text.String()); err != nil {
		p.Note(from, Dropped, "%s", reason(err))
		return
	}
	p.settings = append(p.settings, s)
}

// AddHandler adds a handler. A field that Fairlead refuses is left out and
// reported. It says whether the handler was added: one is not if its name is
// refused, or its program, which is the field "path".
func (p *Plan) AddHandler(name string, at *tree.Node, fields ...Field) bool {
	return p.addHandler(handler{name: name}, at, fields)
}

// AddShim is AddHandler for one that runs containerd shims of a runtime_type.
func (p *Plan) AddShim(name, runtimeType string, at *tree.Node, fields ...Field) bool {
	h := handler{name: name, fields: []setting{{"", "type", "shim"}, {"", "runtime_type", runtimeType}}}
	return p.addHandler(h, at, fields)
}

func (p *Plan) addHandler(h handler, at *tree.Node, fields []Field) bool {
	if err := h.check(); err != nil {
		p.Note(at, Dropped, "%s", reason(err))
		return false
	}
	for _, f := range fields {
		with := h
		with.fields = append(slices.Clone(h.fields), setting{"", f.Key, f.Value})
		err := with.check()
		if err == nil {
			h = with
			continue
		}
		from := cmp.Or(f.From, at)
		p.Note(from, Dropped, "%s", reason(err))
		if f.Key == "path" {
			return false
		}
	}
	p.handlers = append(p.handlers, h)
	return true
}

func (h *handler) check() error {
	var text writer
	text.handler(*h)
	return check(text.String())
}

// HasHandler says whether a handler was added.
func (p *Plan) HasHandler(name string) bool {
	return slices.ContainsFunc(p.handlers, func(h handler) bool { return h.name == name })
}

// check has the daemon's decoder read a text.
func check(text string) error {
	c, err := config.Parse("", []byte(text))
	if err != nil {
		return err
	}
	return c.Validate()
}

// reason is an error without the place, which would be one in our own text.
func reason(err error) string {
	var e *config.Error
	if errors.As(err, &e) {
		return e.Msg
	}
	return err.Error()
}

// Report is the findings in the order of files and lines.
func (p *Plan) Report() []Finding {
	out := slices.Clone(p.Findings)
	slices.SortStableFunc(out, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Key, b.Key))
	})
	return out
}
