package manifests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
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

	doc   *document
	at    string // where in the document it stands: "items[3]"
	named bool   // by metadata.name, and not by the server
}

// Fault is what cannot be read.
type Fault struct {
	File    string
	Line    int
	Object  string // empty if it is not known which
	Field   string // empty if it is no field's
	Message string
}

// maxFaults bounds what is said of one object: there can be one for each of its
// words, and more of them help nobody.
const maxFaults = 100

// String names an object for people: "Deployment default/web".
func (o *Object) String() string {
	if o.GetNamespace() == "" {
		return o.Kind + " " + o.GetName()
	}
	return o.Kind + " " + o.GetNamespace() + "/" + o.GetName()
}

// Named says that the object has a name of its own, which no other of its kind
// may have. The API server names those with a generateName.
func (o *Object) Named() bool { return o.named }

// LineOf is the line of a field, or of the nearest thing around it that is
// written. Fields are as Kubernetes names them: spec.containers[0].image or
// metadata.annotations[a.b/c]; elements of lists may be named by their name.
func (o *Object) LineOf(field string) int {
	if field == "" {
		return o.Line
	}
	if o.at != "" {
		field = o.at + "." + field
	}
	return o.doc.lineOf(field, o.Line)
}

// Add reads the documents of one file.
func (s *Set) Add(file string, data []byte) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	switch {
	case bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")):
		s.Faults = append(s.Faults, Fault{File: file, Line: 1, Message: "is UTF-16 text; save it as UTF-8"})
	case !utf8.Valid(data):
		s.Faults = append(s.Faults, Fault{File: file, Line: 1, Message: "is not UTF-8 text"})
	default:
		split(data, func(c chunk) { s.document(file, c) })
	}
}

// document reads one document, or several of JSON. What a parser cannot take is
// a fault.
func (s *Set) document(file string, c chunk) {
	defer func() { // the parsers are others' and the text is a stranger's
		if p := recover(); p != nil {
			s.Faults = append(s.Faults, Fault{File: file, Line: c.line, Message: fmt.Sprintf("is not readable as YAML: %v", p)})
		}
	}()
	if s.stream(file, c) {
		return
	}
	text, err := yaml.YAMLToJSONStrict(c.text)
	if err != nil {
		s.Faults = append(s.Faults, syntax(file, c, err)...)
		return
	}
	s.object(&Object{File: file, Line: c.first(), doc: &document{chunk: c}}, text, 0)
}

// stream reads JSON, of which one document can follow another, and says no to
// what begins as no JSON. It may have tabs, which YAML does not take.
func (s *Set) stream(file string, c chunk) bool {
	decoder := json.NewDecoder(bytes.NewReader(c.text))
	for n := 0; ; n++ {
		begin := int(decoder.InputOffset())
		begin += len(c.text[begin:]) - len(bytes.TrimLeft(c.text[begin:], " \t\r\n"))
		line := c.line + bytes.Count(c.text[:begin], []byte("\n"))
		var text json.RawMessage
		err := decoder.Decode(&text)
		if n == 0 && (err != nil || text[0] != '{') {
			return false
		}
		if begin == len(c.text) {
			return true
		}
		if err != nil {
			s.Faults = append(s.Faults, Fault{File: file, Line: line, Message: "is not valid JSON: " + err.Error()})
			return true
		}
		s.object(&Object{File: file, Line: line, doc: &document{chunk: chunk{text, line}}}, text, 0)
	}
}

// syntax is the faults that a parser tells of, each in a line of its own.
func syntax(file string, c chunk, err error) (out []Fault) {
	message := err.Error()
	for _, prefix := range []string{"error converting YAML to JSON: ", "yaml: unmarshal errors:\n  ", "yaml: "} {
		message = strings.TrimPrefix(message, prefix)
	}
	hint := ""
	if bytes.Contains(c.text, []byte("{{")) {
		hint = "; it looks like a template: look at what it renders"
	}
	for text := range strings.SplitSeq(message, "\n") {
		f := Fault{File: file, Line: c.first()}
		text = strings.TrimSpace(text)
		if m := lineInError.FindStringSubmatch(text); m != nil {
			n, _ := strconv.Atoi(m[1])
			f.Line, text = min(c.line+max(n, 1)-1, c.last()), strings.Replace(text, m[0], "", 1)
		}
		f.Message = fmt.Sprintf("is not valid YAML: %.300s%s", text, hint)
		if out = append(out, f); len(out) == maxFaults {
			break
		}
	}
	return out
}
