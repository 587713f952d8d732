package fields

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Check finds the values of a tree that the fields of object do not take, and
// of which the decoder would not say where they are. Each message starts with
// the path.
func Check(tree map[string]any, object any) []string {
	c := valueCheck{names: map[reflect.Type]map[string]reflect.Type{}}
	c.visit(reflect.TypeOf(object), tree, "")
	return c.found
}

type valueCheck struct {
	found []string
	names map[reflect.Type]map[string]reflect.Type
}

var (
	quantityType    = reflect.TypeFor[resource.Quantity]()
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
)

func (c *valueCheck) add(path, format string, args ...any) {
	c.found = append(c.found, path+": "+fmt.Sprintf(format, args...))
}

// visit holds one value against the type of its field. What is of a wrong kind
// altogether is left to the decoder, which says it well.
func (c *valueCheck) visit(t reflect.Type, v any, path string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case v == nil:
	case t == quantityType:
		c.quantity(v, path)
	case reflect.PointerTo(t).Implements(unmarshalerType):
		c.own(t, v, path)
	case t.Kind() == reflect.Struct || t.Kind() == reflect.Map:
		c.object(t, v, path)
	case t.Kind() == reflect.Slice:
		c.list(t, v, path)
	}
}

// own tries a type that reads itself, such as a time.
func (c *valueCheck) own(t reflect.Type, v any, path string) {
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, reflect.New(t).Interface())
	}
	if err != nil {
		c.add(path, "%.80s does not fit here: %v", text, err)
	}
}

func (c *valueCheck) object(t reflect.Type, v any, path string) {
	o, _ := v.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if t.Kind() == reflect.Map {
			c.visit(t.Elem(), o[name], Below(path, name))
			continue
		}
		if c.names[t] == nil {
			c.names[t] = Names(t)
		}
		if field, ok := c.names[t][name]; ok {
			c.visit(field, o[name], Join(path, name))
		}
	}
}

func (c *valueCheck) list(t reflect.Type, v any, path string) {
	if text, ok := v.(string); ok && t.Elem().Kind() == reflect.Uint8 {
		if _, err := base64.StdEncoding.DecodeString(text); err != nil {
			c.add(path, "is not base64: %v", err)
		}
		return
	}
	items, _ := v.([]any)
	for i, item := range items {
		c.visit(t.Elem(), item, fmt.Sprintf("%s[%d]", path, i))
	}
}

// A quantity of more digits, or with a larger exponent, is nobody's, and the
// library takes hours to compare those of a billion digits.
const (
	maxQuantityText     = 64
	maxQuantityExponent = 30
)

var exponent = regexp.MustCompile(`[eE]([+-]?[0-9]+)$`)

func (c *valueCheck) quantity(v any, path string) {
	text := fmt.Sprint(v)
	switch v.(type) {
	case []any, map[string]any, bool:
		text = fmt.Sprintf("%T", v) // no quantity
	}
	if ParseQuantity(text) != nil {
		c.add(path, "%.40q is not a quantity such as 500m or 128Mi", fmt.Sprint(v))
	}
}

// ParseQuantity says whether the text is a quantity that can be counted with.
func ParseQuantity(text string) error {
	if len(text) > maxQuantityText {
		return resource.ErrFormatWrong
	}
	if m := exponent.FindStringSubmatch(strings.TrimSpace(text)); m != nil {
		if n, err := strconv.Atoi(m[1]); err != nil || n < -maxQuantityExponent || n > maxQuantityExponent {
			return resource.ErrFormatWrong
		}
	}
	_, err := resource.ParseQuantity(strings.TrimSpace(text))
	return err
}

// CheckNUL finds strings that cannot be passed to a kernel, at and below path.
func CheckNUL(v any, path string) (out []string) {
	switch v := v.(type) {
	case string:
		if strings.ContainsRune(v, 0) {
			return []string{path + ": holds a NUL character, which ends a string for the kernel; remove it"}
		}
	case []any:
		for i, item := range v {
			out = append(out, CheckNUL(item, fmt.Sprintf("%s[%d]", path, i))...)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if strings.ContainsRune(name, 0) {
				out = append(out, path+": has a key with a NUL character; remove it")
			}
			out = append(out, CheckNUL(v[name], Below(path, name))...)
		}
	}
	return out
}
