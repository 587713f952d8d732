package onepass

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// kind is how values of a type are read.
type kind int

// The kinds. Zero is for types that are not read here.
const (
	other kind = iota
	text
	truth
	whole // a signed integer
	pointer
	list
	dictionary
	object
	quantity
	port   // an intstr.IntOrString
	custom // it reads itself
	raw    // a json.RawMessage, which points into what is read
	left   // is looked over and left out
)

// mostFields is how many fields of one struct can be told apart.
const mostFields = 128

// plan is how to read a type.
type plan struct {
	kind   kind
	of     reflect.Type
	below  *plan             // of a pointer, a list or a dictionary
	fields map[string]*field // of an object, by their names in JSON
	used   sync.Pool         // of a list, for others to be read into: *reflect.Value, which has only zeros
}

// field is one of a struct, or of one that is embedded in it.
type field struct {
	index []int
	bit   int
	plan  *plan
}

// plans has what was worked out, by reflect.Type.
var plans sync.Map

func planOf(t reflect.Type) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	p := planner{}.plan(t)
	plans.Store(t, p)
	return p
}

// planner has the plans of one type and of all below it, so that a type may
// contain itself.
type planner map[reflect.Type]*plan

var (
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textual     = reflect.TypeFor[encoding.TextUnmarshaler]()

	// particular are types that are read otherwise than by what they are.
	particular = map[reflect.Type]kind{
		reflect.TypeFor[resource.Quantity]():  quantity,
		reflect.TypeFor[intstr.IntOrString](): port,
		reflect.TypeFor[json.RawMessage]():    raw,
		reflect.TypeFor[metav1.FieldsV1]():    left, // nobody here asks for it, and it is long
		reflect.TypeFor[json.Number]():        other,
	}
)

func (all planner) plan(t reflect.Type) *plan {
	if p := all[t]; p != nil {
		return p
	}
	p := &plan{of: t}
	all[t] = p
	is, ok := particular[t]
	switch {
	case ok:
		p.kind = is
		return p
	case t.Kind() == reflect.Pointer:
		p.kind, p.below = pointer, all.plan(t.Elem())
		return p
	case reflect.PointerTo(t).Implements(unmarshaler):
		p.kind = custom
		return p
	case reflect.PointerTo(t).Implements(textual):
		return p
	}
	switch t.Kind() {
	case reflect.String:
		p.kind = text
	case reflect.Bool:
		p.kind = truth
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		p.kind = whole
	case reflect.Slice:
		if t.Elem().Kind() != reflect.Uint8 { // that is base64
			p.kind, p.below = list, all.plan(t.Elem())
		}
	case reflect.Map:
		if k := t.Key(); k.Kind() == reflect.String && !reflect.PointerTo(k).Implements(textual) {
			p.kind, p.below = dictionary, all.plan(t.Elem())
		}
	case reflect.Struct:
		p.fields = map[string]*field{}
		if all.add(p.fields, t, nil) && len(p.fields) <= mostFields {
			p.kind = object
		}
	}
	return p
}

// add adds the fields of a struct, and says whether their names tell them apart.
func (all planner) add(fields map[string]*field, t reflect.Type, above []int) bool {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" && options == "" || !f.IsExported() && !f.Anonymous {
			continue
		}
		index := append(append([]int{}, above...), i)
		if f.Anonymous && name == "" {
			if f.Type.Kind() != reflect.Struct || !all.add(fields, f.Type, index) {
				return false
			}
			continue
		}
		if name == "" {
			name = f.Name
		}
		if fields[name] != nil || !f.IsExported() || options == "string" || !simple(name) {
			return false
		}
		fields[name] = &field{index: index, bit: len(fields), plan: all.plan(f.Type)}
	}
	return true
}

// simple says that a name in a tag is taken as it is.
func simple(name string) bool {
	return strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}
