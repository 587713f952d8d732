package review

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/resource"
)

// To read 1e-1000000000 as a quantity of a resource takes minutes and gigabytes,
// and so do millions of digits. No quantity needs more than these.
const (
	mostExponentDigits = 3
	mostDigits         = 64
)

var quantityType = reflect.TypeFor[resource.Quantity]()

// boundQuantities refuses objects with a quantity that is costly to read. Nearly
// all objects have nothing that looks like one, which one pass over them tells; of
// the others it matters where it stands: a label may be a hash like 12e4567. Which
// places are read as quantities the type says that the object is read into.
func boundQuantities(object []byte, into reflect.Type) error {
	if !looksCostly(object) {
		return nil
	}
	var tree any
	in := json.NewDecoder(bytes.NewReader(object))
	in.UseNumber()
	if err := in.Decode(&tree); err != nil {
		return err
	}
	return bound(tree, into, "")
}

// looksCostly finds numbers with a large exponent or very many digits, where a
// value of JSON begins.
func looksCostly(text []byte) bool {
	for i := 0; i+1 < len(text); i++ {
		if c := text[i]; c != '"' && c != ':' {
			continue
		}
		if costly(text[i+1:]) {
			return true
		}
	}
	return false
}

// costly says that a text begins with such a number. The spaces before it are
// those that quantities may have, and not only JSON.
func costly(text []byte) bool {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		if !unicode.IsSpace(r) {
			break
		}
		text = text[n:]
	}
	digits := 0
	for i, c := range text {
		switch {
		case c >= '0' && c <= '9' || c == '.':
			digits++
		case (c == '+' || c == '-') && i == 0:
		default:
			return digits > mostDigits || digits > 0 && (c == 'e' || c == 'E') && largeExponent(text[i+1:])
		}
	}
	return digits > mostDigits
}

func largeExponent(text []byte) bool {
	if len(text) > 0 && (text[0] == '+' || text[0] == '-') {
		text = text[1:]
	}
	for i, c := range text {
		if c < '0' || c > '9' {
			return i > mostExponentDigits
		}
	}
	return len(text) > mostExponentDigits
}

// bound walks through an object and what it is read into, side by side; path is
// where it is.
func bound(at any, into reflect.Type, path string) error {
	for into.Kind() == reflect.Pointer {
		into = into.Elem()
	}
	if into == quantityType {
		return boundOne(at, path)
	}
	switch v := at.(type) {
	case map[string]any:
		return boundMembers(v, into, path)
	case []any:
		if into.Kind() != reflect.Slice {
			return nil
		}
		for i, below := range v {
			if err := bound(below, into.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	}
	return nil
}

func boundMembers(object map[string]any, into reflect.Type, path string) error {
	if into.Kind() == reflect.Struct {
		return boundFields(object, into, path)
	}
	if into.Kind() != reflect.Map {
		return nil
	}
	for key, below := range object {
		if err := bound(below, into.Elem(), path+"["+key+"]"); err != nil {
			return err
		}
	}
	return nil
}

// boundFields walks through the fields of a struct by their names in JSON, which
// are told apart by case, as the decoder does.
func boundFields(object map[string]any, into reflect.Type, path string) error {
	for i := range into.NumField() {
		field := into.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" || !field.IsExported() {
			continue
		}
		if name == "" && field.Anonymous {
			if err := bound(object, field.Type, path); err != nil {
				return err
			}
			continue
		}
		if name == "" {
			name = field.Name
		}
		below, ok := object[name]
		if !ok {
			continue
		}
		if err := bound(below, field.Type, strings.TrimPrefix(path+"."+name, ".")); err != nil {
			return err
		}
	}
	return nil
}

func boundOne(at any, path string) error {
	var text string
	switch v := at.(type) {
	case string:
		text = v
	case json.Number:
		text = v.String()
	}
	if costly([]byte(text)) {
		return fmt.Errorf("%s: %s is no quantity of anything: write it with at most %d digits, and an exponent of at most %d", cut(path, 2*mostQuoted), quoted(text), mostDigits, mostExponentDigits)
	}
	return nil
}
