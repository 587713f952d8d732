package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"fairlead.run/internal/node/manifest/fields"
)

// Bounds of one document. The deepest path of a Pod has about 15 steps.
const (
	maxDepth     = 64
	maxNodes     = 500_000 // with aliases counted each time they are used
	maxDocuments = 10_000
)

// document is one document of a file.
type document struct {
	source string
	number int // from 1, empty documents not counted
	item   int // from 1 within a List, else 0
	line   int // of its first line, from 1
	text   []byte
	root   *yamlv3.Node // for line numbers; nil where they are not known
	json   []byte
	tree   map[string]any
}

// fault says what is wrong at a line of the document; 0 means no line is known.
func (d *document) fault(line int, format string, args ...any) error {
	return invalid("%s: %s", d.where(line), fmt.Sprintf(format, args...))
}

func (d *document) where(line int) string {
	text := d.source
	if line > 0 {
		text += ":" + strconv.Itoa(line+d.line-1)
	}
	text += ": document " + strconv.Itoa(d.number)
	if d.item > 0 {
		text += ", item " + strconv.Itoa(d.item)
	}
	return text
}

// first is the line that the document's content starts at.
func (d *document) first() int {
	if d.root == nil || len(d.root.Content) == 0 {
		return 1
	}
	return d.root.Content[0].Line
}

// split cuts a file at its "---" lines. A separator stays in front of its
// document, because content may follow it on the same line.
func split(s Source) ([]*document, error) {
	var docs []*document
	start, startLine, line := 0, 1, 0
	flush := func(end int) {
		if text := s.Data[start:end]; !blank(text) {
			docs = append(docs, &document{source: s.Name, number: len(docs) + 1, line: startLine, text: text})
		}
	}
	for at := 0; at < len(s.Data); {
		line++
		end := len(s.Data)
		if n := bytes.IndexByte(s.Data[at:], '\n'); n >= 0 {
			end = at + n + 1
		}
		if isSeparator(s.Data[at:end]) {
			flush(at)
			start, startLine = at, line
		}
		at = end
	}
	flush(len(s.Data))
	if len(docs) > maxDocuments {
		return nil, invalid("%s: it holds %d documents; the most is %d", s.Name, len(docs), maxDocuments)
	}
	return docs, nil
}

func isSeparator(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	return ok && (len(rest) == 0 || rest[0] == '\n' || rest[0] == '\r' || rest[0] == ' ' || rest[0] == '\t')
}

// blank says whether the text holds nothing but separators and comments.
func blank(text []byte) bool {
	for line := range bytes.Lines(text) {
		if isSeparator(line) {
			line = line[3:]
		}
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

// parse fills root, json and tree.
func (d *document) parse() (err error) {
	defer func() { // the parsers are others' and the text is a stranger's
		if p := recover(); p != nil {
			err = d.fault(0, "is not readable as YAML: %v", p)
		}
	}()
	if !utf8.Valid(d.text) {
		return d.fault(0, "is not UTF-8 text")
	}
	if trimmed := bytes.TrimSpace(d.text); bytes.HasPrefix(trimmed, []byte("{")) && json.Valid(trimmed) {
		d.json = trimmed
	}
	if err := d.parseYAML(); err != nil {
		return err
	}
	if d.json == nil {
		if d.json, err = yaml.YAMLToJSONStrict(d.text); err != nil {
			return d.syntax(err)
		}
	}
	var tree any
	decoder := json.NewDecoder(bytes.NewReader(d.json))
	decoder.UseNumber()
	if err := decoder.Decode(&tree); err != nil {
		return d.syntax(err)
	}
	if line := d.deepLine(); line > 0 {
		return d.fault(line, tooDeep, maxDepth)
	}
	var ok bool
	if d.tree, ok = tree.(map[string]any); !ok {
		return d.fault(0, "is not an object: it must start with apiVersion, kind and metadata")
	}
	return nil
}

// parseYAML checks the document's shape before anything expands its aliases.
// JSON that YAML cannot read (tabs in front of lines) only loses its line
// numbers.
func (d *document) parseYAML() error {
	decoder := yamlv3.NewDecoder(bytes.NewReader(d.text))
	var root yamlv3.Node
	if err := decoder.Decode(&root); err != nil {
		if d.json != nil {
			return nil
		}
		return d.syntax(err)
	}
	var more yamlv3.Node
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return d.fault(0, `goes on after its end ("..."); put --- on a line of its own between documents`)
	}
	c := counter{}
	if line, why := c.visit(&root, 0); why != "" {
		return d.fault(line, "%s", why)
	}
	d.root = &root
	return nil
}

// counter counts nodes as if every alias were written out.
type counter struct{ nodes int }

func (c *counter) visit(n *yamlv3.Node, level int) (line int, why string) {
	if level > maxDepth+1 { // the document itself is a level of its own
		return n.Line, fmt.Sprintf(tooDeep, maxDepth)
	}
	if c.nodes++; c.nodes > maxNodes {
		return n.Line, fmt.Sprintf("holds more than %d values, counting every use of an alias", maxNodes)
	}
	if n.Kind == yamlv3.AliasNode {
		return c.visit(n.Alias, level+1)
	}
	for _, child := range n.Content {
		if line, why := c.visit(child, level+1); why != "" {
			return line, why
		}
	}
	return 0, ""
}

// tooDeep is what all parsers' limits of depth come to: ours is the lowest.
const tooDeep = "is nested deeper than %d levels"

// deepLine is the line where the JSON goes too deep, or 0. YAML's own nodes
// were counted before; this is for JSON that YAML cannot read.
func (d *document) deepLine() int {
	decoder := json.NewDecoder(bytes.NewReader(d.json))
	level := 0
	for {
		token, err := decoder.Token()
		if err != nil {
			return 0
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			level++
		case json.Delim('}'), json.Delim(']'):
			level--
		}
		if level > maxDepth {
			before := max(bytes.Index(d.text, d.json), 0) + int(decoder.InputOffset())
			return 1 + bytes.Count(d.text[:min(before, len(d.text))], []byte("\n"))
		}
	}
}

var (
	lineInError = regexp.MustCompile(`line (\d+)(?:, column \d+)?: ?`)
	longDashes  = regexp.MustCompile(`(?m)^-{4,}[ \t\r]*$`)
)

// syntax turns a parser's error into one that names the line in the file.
func (d *document) syntax(err error) error {
	text := err.Error()
	for _, prefix := range []string{"error converting YAML to JSON: ", "yaml: unmarshal errors:\n  ", "yaml: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	line := 0
	if m := lineInError.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = strings.Replace(text, m[0], "", 1)
	}
	if strings.Contains(text, "exceeded max depth") { // the parser names no line if it is the first
		return d.fault(max(line, 1), tooDeep, maxDepth)
	}
	if at := longDashes.FindIndex(d.text); at != nil {
		line = 1 + bytes.Count(d.text[:at[0]], []byte("\n"))
		text = "a separator between documents has exactly three dashes (---), this line has more"
	}
	return d.fault(line, "is not valid YAML: %s", text)
}

// lineOf finds the line of a field, or of the nearest thing around it that is
// there. The path is written as "spec.containers[0].image".
func (d *document) lineOf(path string) int {
	_, line, _ := d.find(path)
	return line
}

// find finds a node and its line. If it is not there, found is false and the
// line is that of the nearest thing around it.
func (d *document) find(path string) (node *yamlv3.Node, line int, found bool) {
	if d.root == nil || len(d.root.Content) == 0 {
		return nil, 0, false
	}
	node = d.root.Content[0]
	for _, step := range fields.Steps(path) {
		next, at := child(written(node), step)
		if next == nil {
			return nil, line, false
		}
		node, line = next, at
	}
	return written(node), line, true
}

// written is what an alias stands for.
func written(n *yamlv3.Node) *yamlv3.Node {
	for n.Kind == yamlv3.AliasNode {
		n = n.Alias
	}
	return n
}

func child(n *yamlv3.Node, step string) (*yamlv3.Node, int) {
	switch n.Kind {
	case yamlv3.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return n.Content[i+1], n.Content[i].Line
			}
		}
	case yamlv3.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i].Line
		}
	}
	return nil, 0
}
