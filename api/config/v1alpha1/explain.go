package v1alpha1

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// explain turns an error of the decoder into one that a person can act on.
func explain(file string, data []byte, err error) error {
	var unknown *toml.StrictMissingError
	if errors.As(err, &unknown) {
		var all []error
		for i := range unknown.Errors {
			all = append(all, explainUnknown(file, &unknown.Errors[i]))
		}
		return errors.Join(all...)
	}
	var wrong *toml.DecodeError
	if !errors.As(err, &wrong) {
		key, at := unquotedDuration(data)
		return &Error{File: file, Line: at.Line, Column: at.Column, Key: strings.Join(key, "."), Msg: err.Error()}
	}
	e := &Error{File: file, Key: strings.Join(wrong.Key(), ".")}
	e.Line, e.Column = wrong.Position()
	e.Msg = strings.TrimPrefix(wrong.Error(), "toml: ")
	if got := mismatch.FindStringSubmatch(e.Msg); got != nil {
		e.Msg = "this is " + article(got[1])
		if t := typeOf(wrong.Key()); t != nil {
			e.Msg += ", but the key takes " + expected(t)
		}
	}
	return e
}

// mismatch is what the decoder says of a value of the wrong type. The rest of
// its sentence names Go types, which mean nothing to whoever wrote the file.
var mismatch = regexp.MustCompile(`^cannot (?:decode|store) (?:a )?(?:TOML|toml) ([a-z ]+?) (?:in|into) `)

func article(noun string) string {
	if strings.ContainsAny(noun[:1], "aeiou") {
		return "an " + noun
	}
	return "a " + noun
}

func explainUnknown(file string, d *toml.DecodeError) error {
	e := &Error{File: file, Key: strings.Join(d.Key(), "."), Msg: "unknown key"}
	e.Line, e.Column = d.Position()
	if known := suggest(d.Key()); known != "" {
		e.Msg += fmt.Sprintf(", did you mean %s?", known)
	}
	return e
}

// suggest names the known key that is meant by an unknown one: of the same name in
// another table, or nearest to it in this one.
func suggest(key []string) string {
	if len(key) == 0 {
		return ""
	}
	// The table itself may be the unknown part.
	depth := 0
	for depth < len(key)-1 && typeOf(key[:depth+1]) != nil {
		depth++
	}
	name := key[depth]
	parent := typeOf(key[:depth])
	if parent == nil || !isTable(parent) {
		return ""
	}
	for table, f := range keysOf(reflect.TypeFor[Config]()) {
		if !isTable(f.Type) {
			continue
		}
		if _, here := keysOf(f.Type)[name]; here {
			return table + "." + name
		}
	}
	if _, top := keysOf(reflect.TypeFor[Config]())[name]; top {
		return name + " above the first [table]"
	}
	if near := Nearest(name, slices.Collect(maps.Keys(keysOf(parent)))); near != "" {
		return strings.Join(append(append([]string(nil), key[:depth]...), near), ".")
	}
	return ""
}

// typeOf is the type of the value that a key names, or nil.
func typeOf(key []string) reflect.Type {
	t := reflect.TypeFor[Config]()
	for _, name := range key {
		switch t.Kind() {
		case reflect.Map:
			t = t.Elem()
		case reflect.Struct:
			f, ok := keysOf(t)[name]
			if !ok {
				return nil
			}
			t = f.Type
		default:
			return nil
		}
	}
	return t
}

// isTable tells tables from values that are structs in Go.
func isTable(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t != reflect.TypeFor[Duration]()
}

// keysOf are the fields of a struct by their keys.
func keysOf(t reflect.Type) map[string]reflect.StructField {
	keys := map[string]reflect.StructField{}
	for i := range t.NumField() {
		if f := t.Field(i); f.Tag.Get("toml") != "" {
			keys[f.Tag.Get("toml")] = f
		}
	}
	return keys
}

// expected describes a type to whoever writes the file.
func expected(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[Duration]():
		return `a duration in quotes, as "90s"`
	case reflect.TypeFor[Limit]():
		return `a number or "unlimited"`
	}
	switch t.Kind() {
	case reflect.String:
		return "a string in quotes"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a number"
	case reflect.Slice:
		return "a list of strings in brackets"
	}
	return "a table"
}
