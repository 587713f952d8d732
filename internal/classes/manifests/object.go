package manifests

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"fairlead.run/internal/node/manifest/fields"
)

// head is what every object has. What is not of the right type is told once it
// is known to be an object of ours.
type head struct {
	APIVersion any             `json:"apiVersion"`
	Kind       any             `json:"kind"`
	Items      json.RawMessage `json:"items"`
	Metadata   json.RawMessage `json:"metadata"`
}

// name is for messages, also where it is no text: "name: no" is a truth value.
func (h *head) name() (name string, own bool) {
	var m struct {
		Name         any `json:"name"`
		GenerateName any `json:"generateName"`
	}
	_ = json.Unmarshal(h.Metadata, &m) // that it is no mapping is told later
	for i, v := range []any{m.Name, m.GenerateName} {
		if v != nil && v != "" {
			return fmt.Sprintf("%.300s", fmt.Sprint(v)), i == 0
		}
	}
	return "", false
}

// maxNested bounds lists in lists: each of them is read once more.
const maxNested = 4

// object reads one object, or the items of a list. The list that it is in says
// what it is if it does not itself, as those that an API server answers with.
func (s *Set) object(o *Object, text []byte, nested int) {
	var h head
	err := kjson.UnmarshalCaseSensitivePreserveInts(text, &h)
	if version, is := h.APIVersion.(string); is {
		o.Version = version
	}
	if kind, is := h.Kind.(string); is && kind != "" {
		o.Kind = kind
	}
	item, list := strings.CutSuffix(o.Kind, "List")
	switch {
	case err != nil || o.Kind == "":
		s.Skipped++ // values of a chart, a list of patches: no business of ours
	case list && len(h.Items) > 0:
		s.items(o, h.Items, item, nested)
	case kinds[o.Version+" "+o.Kind] == nil:
		if why := misversioned(o.Version, o.Kind); why != "" {
			s.Faults = append(s.Faults, Fault{File: o.File, Line: o.LineOf("apiVersion"), Object: h.describe(o.Kind), Field: "apiVersion", Message: why})
			return
		}
		s.Skipped++
	default:
		s.known(o, &h, text)
	}
}

func (h *head) describe(kind string) string {
	name, _ := h.name()
	return strings.TrimSpace(kind + " " + name)
}

// items reads what is in a list.
func (s *Set) items(o *Object, text json.RawMessage, kind string, nested int) {
	var items []json.RawMessage
	err := json.Unmarshal(text, &items)
	if err == nil && nested < maxNested {
		for i, text := range items {
			of := &Object{File: o.File, doc: o.doc, at: fmt.Sprintf("%sitems[%d]", below(o.at), i)}
			if of.Line = o.doc.lineOf(of.at, o.Line); kind != "" {
				of.Version, of.Kind = o.Version, kind
			}
			s.object(of, text, nested+1)
		}
		return
	}
	message := "is no list"
	if err == nil {
		message = fmt.Sprintf("is a list in %d others; take it apart", nested)
	} else if kind != "" && len(versionsOf(kind)) == 0 {
		s.Skipped++ // a kind of others that only sounds like a list
		return
	}
	s.Faults = append(s.Faults, Fault{File: o.File, Line: o.LineOf("items"), Object: o.Kind, Field: "items", Message: message})
}

func below(at string) string {
	if at == "" {
		return ""
	}
	return at + "."
}

// misversioned says what is wrong with a version of a kind that is read in
// others. Nothing is with those of other groups, which have kinds of that name.
func misversioned(version, kind string) string {
	versions := versionsOf(kind)
	if len(versions) == 0 {
		return ""
	}
	best := slices.MinFunc(versions, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	switch {
	case version == "":
		return fmt.Sprintf("is missing; a %s has %s", kind, best)
	case group(version) == group(best) || group(version) == "extensions":
		return fmt.Sprintf("%.100s has no %s that is known here; write %s", version, kind, best)
	}
	return ""
}

func group(version string) string {
	g, _, ok := strings.Cut(version, "/")
	if !ok {
		return ""
	}
	return g
}

// known reads an object of a kind that is.
func (s *Set) known(o *Object, h *head, text []byte) {
	name, own := h.name()
	o.Object, o.named = kinds[o.Version+" "+o.Kind](), own
	if found := malformed(o, text); len(found) > 0 {
		o.SetName(name)
		s.tell(o, found)
		return
	}
	strict, err := kjson.UnmarshalStrict(text, o.Object)
	if o.GetName() == "" {
		o.SetName(name)
	}
	if o.GetNamespace() == "" && !slices.Contains(clusterwide, o.Kind) {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	if err != nil {
		s.tell(o, []Fault{mistyped(err)})
		return
	}
	var found []Fault
	for _, err := range strict {
		field := quoted(err.Error())
		found = append(found, Fault{Field: field, Message: strictly(err, o, field)})
	}
	s.tell(o, found)
	s.Objects = append(s.Objects, o)
}

// tell adds the faults of an object, with their places.
func (s *Set) tell(o *Object, found []Fault) {
	if n := len(found); n > maxFaults {
		found = append(found[:maxFaults:maxFaults], Fault{Message: fmt.Sprintf("has %d faults more", n-maxFaults)})
	}
	for _, f := range found {
		f.File, f.Line, f.Object = o.File, o.LineOf(f.Field), o.String()
		s.Faults = append(s.Faults, f)
	}
}

// malformed finds values that no decoder should see, such as a quantity that
// takes minutes to read.
func malformed(o *Object, text []byte) (out []Fault) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var tree map[string]any
	if decoder.Decode(&tree) != nil {
		return nil // the next one says why
	}
	for _, why := range fields.Check(tree, o.Object) {
		field, message, _ := strings.Cut(why, ": ")
		out = append(out, Fault{Field: field, Message: message})
	}
	return out
}

// mistyped says what a decoder cannot take.
func mistyped(err error) Fault {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) || wrong.Field == "" {
		return Fault{Message: "cannot be read: " + err.Error()}
	}
	takes := "a number"
	switch wrong.Type.Kind() {
	case reflect.Bool:
		takes = "true or false"
	case reflect.String:
		takes = "text; write it in quotes"
	case reflect.Slice, reflect.Array:
		takes = "a list"
	case reflect.Struct, reflect.Map, reflect.Pointer, reflect.Interface:
		takes = "fields"
	}
	has := map[string]string{"bool": "true or false", "object": "fields", "array": "a list", "string": "text"}[wrong.Value]
	return Fault{Field: wrong.Field, Message: fmt.Sprintf("has %s and takes %s", cmp.Or(has, wrong.Value), takes)}
}

// strictly says what a strict decoder minds.
func strictly(err error, o *Object, field string) string {
	if strings.HasPrefix(err.Error(), "unknown field") {
		return "is not a field of " + o.Kind + fields.Hint(o.Object, field)
	}
	return err.Error()
}

// quoted is what stands within the quotes of a message.
func quoted(s string) string {
	_, s, _ = strings.Cut(s, `"`)
	s, _, _ = strings.Cut(s, `"`)
	return s
}
