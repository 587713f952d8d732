package v1alpha1

import (
	"fmt"
	"reflect"
	"strings"
)

// Key describes one key of the configuration, for documents and for help.
type Key struct {
	Name    string // "network.bridge"; NAME stands for a name of the reader's choice
	Table   bool
	Type    string // "string", "list of strings", ...
	Default string // as it would be written in a file; empty for tables
	Zero    string // what an empty value stands for
	Flag    string // the flag of the same meaning, without dashes
	Doc     string
}

// Keys describes all keys in the order of the structs.
func Keys() []Key {
	return describe(nil, reflect.ValueOf(Default()).Elem())
}

func describe(prefix []string, v reflect.Value) []Key {
	var keys []Key
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name := f.Tag.Get("toml")
		if name == "" {
			continue
		}
		path := append(append([]string(nil), prefix...), name)
		k := Key{
			Name: strings.Join(path, "."),
			Zero: f.Tag.Get("zero"),
			Flag: f.Tag.Get("flag"),
			Doc:  f.Tag.Get("doc"),
		}
		switch {
		case isTable(f.Type):
			k.Table = true
			keys = append(append(keys, k), describe(path, v.Field(i))...)
		case f.Type.Kind() == reflect.Map && f.Type.Elem().Kind() == reflect.Interface:
			k.Table = true // whose keys are others' to name
			keys = append(keys, k)
		case f.Type.Kind() == reflect.Map:
			k.Table, k.Name = true, k.Name+".NAME"
			inner := describe(append(path, "NAME"), reflect.New(f.Type.Elem()).Elem())
			keys = append(append(keys, k), inner...)
		default:
			k.Type, k.Default = typeName(f.Type), literal(v.Field(i))
			keys = append(keys, k)
		}
	}
	return keys
}

func typeName(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[Duration]():
		return "duration"
	case t == reflect.TypeFor[Limit]():
		return `number or "unlimited"`
	case t.Kind() == reflect.Slice:
		return "list of strings"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.String:
		return "string"
	}
	return "number"
}

// literal is a value as TOML.
func literal(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case Duration:
		return fmt.Sprintf("%q", x.String())
	case Limit:
		return x.String()
	case string:
		return fmt.Sprintf("%q", x)
	case []string:
		quoted := make([]string, len(x))
		for i, s := range x {
			quoted[i] = fmt.Sprintf("%q", s)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	}
	return fmt.Sprint(v.Interface())
}
