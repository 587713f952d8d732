package manifests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	yamlv3 "go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"fairlead.run/internal/node/manifest/fields"
)

// Set is what was read.
type Set struct {
	Objects []*Object
	Faults  []Fault
	Skipped int // objects of other kinds
}

// Object is one object, and where it stands.
type Object struct {
	metav1.Object
	Version, Kind string // "apps/v1", "Deployment"
	File          string
	Line          int // of its first line, from 1

	root *yamlv3.Node // nil where lines are not known
	from int          // the line of the file that root's first is
	last int          // of its document: YAML counts line breaks that editors do not
}

// Fault is what cannot be read.
type Fault struct {
	File    string
	Line    int
	Object  string // empty if it is not known which
	Field   string // empty if it is no field's
	Message string
}

// String names an object for people: "Deployment default/web".
func (o *Object) String() string {
	if o.GetNamespace() == "" {
		return o.Kind + " " + o.GetName()
	}
	return o.Kind + " " + o.GetNamespace() + "/" + o.GetName()
}

// LineOf is the line of a field, or of the nearest thing around it that is
// written. Fields are as Kubernetes names them: spec.containers[0].image or
// metadata.annotations[a.b/c]; elements of lists may be named by their name.
func (o *Object) LineOf(field string) int {
	if o.root == nil {
		return o.Line
	}
	node, line := o.root, o.Line
	for _, step := range steps(field) {
		next, at := child(node, step)
		if next == nil {
			return line
		}
		node, line = next, min(at+o.from-1, o.last)
	}
	return line
}

// step is one of a path: what is in brackets may have dots.
var step = regexp.MustCompile(`\[([^\]]*)\]|([^.\[\]]+)`)

func steps(field string) (out []string) {
	for _, m := range step.FindAllStringSubmatch(field, -1) {
		out = append(out, m[1]+m[2])
	}
	return out
}

func child(n *yamlv3.Node, name string) (*yamlv3.Node, int) {
	for n.Kind == yamlv3.AliasNode {
		n = n.Alias
	}
	switch n.Kind {
	case yamlv3.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == name {
				return n.Content[i+1], n.Content[i].Line
			}
		}
	case yamlv3.SequenceNode:
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i].Line
		}
		for _, element := range n.Content {
			if v, _ := child(element, "name"); v != nil && v.Value == name {
				return element, element.Line
			}
		}
	}
	return nil, 0
}

// Add reads the documents of one file.
func (s *Set) Add(file string, data []byte) {
	if !utf8.Valid(data) {
		s.Faults = append(s.Faults, Fault{File: file, Line: 1, Message: "is not UTF-8 text"})
		return
	}
	for _, c := range split(data) {
		s.document(file, c)
	}
}

var lineInError = regexp.MustCompile(`line (\d+): ?`)

// document reads one document. What a parser cannot take is a fault.
func (s *Set) document(file string, c chunk) {
	defer func() { // the parsers are others' and the text is a stranger's
		if p := recover(); p != nil {
			s.Faults = append(s.Faults, Fault{File: file, Line: c.line, Message: fmt.Sprintf("is not readable as YAML: %v", p)})
		}
	}()
	var root yamlv3.Node
	text, err := yaml.YAMLToJSONStrict(c.text)
	if err == nil {
		// Where only one of the two parsers can read it, lines are not known.
		_ = yamlv3.Unmarshal(c.text, &root)
	}
	if trimmed := bytes.TrimSpace(c.text); err != nil && json.Valid(trimmed) {
		text, err = trimmed, nil // YAML takes no tabs
	}
	if err != nil {
		s.Faults = append(s.Faults, syntax(file, c, err))
		return
	}
	o := &Object{File: file, Line: c.line, from: c.line, last: c.last()}
	if len(root.Content) > 0 {
		o.root = root.Content[0]
		o.Line = min(o.root.Line+c.line-1, o.last)
	}
	s.object(o, text)
}

func syntax(file string, c chunk, err error) Fault {
	message := err.Error()
	for _, prefix := range []string{"error converting YAML to JSON: ", "yaml: unmarshal errors:\n  ", "yaml: "} {
		message = strings.TrimPrefix(message, prefix)
	}
	f := Fault{File: file, Line: c.line}
	if m := lineInError.FindStringSubmatch(message); m != nil {
		n, _ := strconv.Atoi(m[1])
		f.Line, message = min(c.line+max(n, 1)-1, c.last()), strings.Replace(message, m[0], "", 1)
	}
	f.Message = "is not valid YAML: " + message
	return f
}

// head is what every object has.
type head struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Items      []json.RawMessage `json:"items"`
	Metadata   struct {
		Name         any `json:"name"`
		GenerateName any `json:"generateName"`
	} `json:"metadata"`
}

// name is for messages, also where it is no text: "name: no" is a truth value.
func (h *head) name() string {
	for _, v := range []any{h.Metadata.Name, h.Metadata.GenerateName} {
		if v != nil {
			return fmt.Sprint(v)
		}
	}
	return ""
}

// object reads one object, or the items of a list.
func (s *Set) object(o *Object, text []byte) {
	var h head
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &h); err != nil || h.APIVersion == "" || h.Kind == "" {
		s.Skipped++ // values of a chart, a list of patches: no business of ours
		return
	}
	if h.Items != nil && strings.HasSuffix(h.Kind, "List") {
		for i, item := range h.Items {
			s.object(o.item(i), item)
		}
		return
	}
	empty := kinds[h.APIVersion+" "+h.Kind]
	if empty == nil {
		s.Skipped++
		return
	}
	o.Object, o.Version, o.Kind = empty(), h.APIVersion, h.Kind
	if s.malformed(o, &h, text) {
		return
	}
	strict, err := kjson.UnmarshalStrict(text, o.Object)
	if o.GetName() == "" {
		o.SetName(h.name())
	}
	if o.GetNamespace() == "" && !slices.Contains(clusterwide, h.Kind) {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	if err != nil {
		s.Faults = append(s.Faults, Fault{File: o.File, Line: o.Line, Object: o.String(), Message: "cannot be read: " + err.Error()})
		return
	}
	for _, err := range strict {
		field := quoted(err.Error())
		s.Faults = append(s.Faults, Fault{File: o.File, Line: o.LineOf(field), Object: o.String(), Field: field, Message: strictly(err, o, field)})
	}
	s.Objects = append(s.Objects, o)
}

// malformed tells of values that no decoder should see, such as a quantity that
// takes minutes to read, and of those of a wrong type, with their field.
func (s *Set) malformed(o *Object, h *head, text []byte) bool {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var tree map[string]any
	if decoder.Decode(&tree) != nil {
		return false // the next one says why
	}
	wrong := fields.Check(tree, o.Object)
	o.SetName(h.name())
	for _, why := range wrong {
		field, message, _ := strings.Cut(why, ": ")
		s.Faults = append(s.Faults, Fault{File: o.File, Line: o.LineOf(field), Object: o.String(), Field: field, Message: message})
	}
	return len(wrong) > 0
}

// strictly says what a strict decoder minds.
func strictly(err error, o *Object, field string) string {
	if strings.HasPrefix(err.Error(), "unknown field") {
		return "is not a field of " + o.Kind + fields.Hint(o.Object, field)
	}
	return err.Error()
}

// item is the place of an item of a list.
func (o *Object) item(i int) *Object {
	out := &Object{File: o.File, Line: o.LineOf(fmt.Sprintf("items[%d]", i)), from: o.from, last: o.last}
	if o.root == nil {
		return out
	}
	if list, _ := child(o.root, "items"); list != nil {
		out.root, _ = child(list, strconv.Itoa(i))
	}
	return out
}

// quoted is what stands within the quotes of a message.
func quoted(s string) string {
	_, s, _ = strings.Cut(s, `"`)
	s, _, _ = strings.Cut(s, `"`)
	return s
}
