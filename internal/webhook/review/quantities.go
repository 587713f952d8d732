package review

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// To read 1e-1000000000 as a quantity of a resource takes minutes and gigabytes,
// and so do millions of digits. No quantity needs more than these.
const (
	mostExponentDigits = 3
	mostDigits         = 64
)

// boundQuantities refuses objects with a quantity that is costly to read. Nearly
// all objects have nothing that looks like one, which one pass over them tells; of
// the others it matters where it stands: a label may be a hash like 12e4567.
func boundQuantities(object []byte) error {
	if !looksCostly(object) {
		return nil
	}
	var tree any
	in := json.NewDecoder(bytes.NewReader(object))
	in.UseNumber()
	if err := in.Decode(&tree); err != nil {
		return err
	}
	return bound(tree, "", false)
}

// looksCostly finds numbers with a large exponent or very many digits, where a
// value of JSON begins.
func looksCostly(text []byte) bool {
	for i := 0; i+1 < len(text); i++ {
		c := text[i]
		if c != '"' && c != ':' {
			continue
		}
		if n := skipSpace(text[i+1:]); costly(text[i+1+n:]) {
			return true
		}
	}
	return false
}

func skipSpace(text []byte) int {
	n := 0
	for n < len(text) && (text[n] == ' ' || text[n] == '\t' || text[n] == '\n' || text[n] == '\r') {
		n++
	}
	return n
}

// costly says that a text begins with such a number.
func costly(text []byte) bool {
	i, digits := 0, 0
	for ; i < len(text); i++ {
		switch c := text[i]; {
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
	i := 0
	if i < len(text) && (text[i] == '+' || text[i] == '-') {
		i++
	}
	digits := 0
	for i < len(text) && text[i] >= '0' && text[i] <= '9' {
		i, digits = i+1, digits+1
	}
	return digits > mostExponentDigits
}

// ofQuantities are the fields whose values are quantities, by name.
var ofQuantities = map[string]bool{
	"limits": true, "requests": true, "overhead": true, "podFixed": true, "allocatedResources": true,
	"capacity": true, "allocatable": true, "consumedCapacity": true,
}

// quantities are the fields that are one.
var quantities = map[string]bool{"sizeLimit": true, "divisor": true}

// bound walks through an object; inside says that values here are quantities.
func bound(at any, key string, inside bool) error {
	switch v := at.(type) {
	case map[string]any:
		for k, below := range v {
			if err := bound(below, k, ofQuantities[key]); err != nil {
				return err
			}
		}
	case []any:
		for _, below := range v {
			if err := bound(below, key, inside); err != nil {
				return err
			}
		}
	case string:
		return boundOne(v, key, inside)
	case json.Number:
		return boundOne(v.String(), key, inside)
	}
	return nil
}

func boundOne(text, key string, inside bool) error {
	if raw := []byte(text); (inside || quantities[key]) && costly(raw[skipSpace(raw):]) {
		return fmt.Errorf("%s %s is no quantity of anything: write it with at most %d digits, and an exponent of at most %d", quoted(key), quoted(text), mostDigits, mostExponentDigits)
	}
	return nil
}
