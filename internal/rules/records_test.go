package rules

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"fairlead.run/internal/pod"
)

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// unstorable lists what in a type would be lost, or would fail, on its way into
// the store and back.
func unstorable(t reflect.Type, at string, seen map[reflect.Type]bool) []string {
	if seen[t] || stores(t) {
		return nil
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return unstorable(t.Elem(), at, seen)
	case reflect.Map:
		if k := t.Key(); k.Kind() != reflect.String && !k.Implements(textMarshaler) {
			return []string{fmt.Sprintf("%s is a map whose keys are %s, not strings", at, k)}
		}
		return unstorable(t.Elem(), at, seen)
	case reflect.Struct:
		return unstorableFields(t, at, seen)
	case reflect.Interface, reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Complex64, reflect.Complex128:
		return []string{fmt.Sprintf("%s is a %s, which cannot be read back", at, t.Kind())}
	}
	return nil
}

func unstorableFields(t reflect.Type, at string, seen map[reflect.Type]bool) []string {
	var bad []string
	names := map[string]string{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		name = strings.ToLower(name)
		here := at + "." + f.Name
		switch {
		case !f.IsExported():
			bad = append(bad, here+" is not exported, so it would be lost")
		case name == "" || name == "-":
			bad = append(bad, here+" has no name in a json tag")
		case names[name] != "":
			bad = append(bad, fmt.Sprintf("%s has the json name of %s", here, names[name]))
		default:
			names[name] = here
			bad = append(bad, unstorable(f.Type, here, seen)...)
		}
	}
	return bad
}

// stores is true for types that write and read themselves.
func stores(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	writes := p.Implements(jsonMarshaler) || p.Implements(textMarshaler)
	reads := p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
	return writes && reads
}

func TestPodRecordCanBeStored(t *testing.T) {
	for _, bad := range unstorable(reflect.TypeFor[pod.Record](), "Record", map[reflect.Type]bool{}) {
		t.Error(bad)
	}
}

func TestUnstorableIsFound(t *testing.T) {
	type inner struct {
		Fine string `json:"fine"`
		lost int
	}
	type outer struct {
		List    []*inner       `json:"list"`
		Untyped any            `json:"untyped"`
		Call    func()         `json:"call"`
		Keys    map[[2]int]int `json:"keys"`
		NoTag   string
		Dash    string `json:"-"`
	}
	got := strings.Join(unstorable(reflect.TypeFor[outer](), "O", map[reflect.Type]bool{}), "\n")
	for _, want := range []string{"O.List.lost ", "O.Untyped ", "O.Call ", "O.Keys ", "O.NoTag ", "O.Dash "} {
		if !strings.Contains(got, want) {
			t.Errorf("%s was not found in:\n%s", want, got)
		}
	}
	_ = inner{}.lost
}

// Reading ignores case, so that a and A are one name. Such a struct is built
// here because vet refuses to see it written down.
func TestDoubleNameIsFound(t *testing.T) {
	twice := reflect.StructOf([]reflect.StructField{
		{Name: "A", Type: reflect.TypeFor[int](), Tag: `json:"name"`},
		{Name: "B", Type: reflect.TypeFor[int](), Tag: `json:"Name"`},
	})
	got := unstorable(twice, "T", map[reflect.Type]bool{})
	if len(got) != 1 || !strings.Contains(got[0], "T.B has the json name of T.A") {
		t.Fatalf("found %q", got)
	}
}
