package onepass

import (
	"encoding/json"
	"reflect"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Decode reads a text into what into points to, which must be zero, and is zero again
// if it returns false. Costly says that a quantity should not be read, as it is written.
//
// Two things are left to the caller: a json.RawMessage points into the text, and
// metav1.FieldsV1 are looked over and left out.
func Decode(text []byte, into any, costly func(quantity []byte) bool) bool {
	v := reflect.ValueOf(into).Elem()
	d := decoder{reader{text: text}, costly}
	if d.value(planOf(v.Type()), v) && d.next() == 0 && d.at == len(text) {
		return true
	}
	v.SetZero()
	return false
}

type decoder struct {
	reader
	costly func([]byte) bool
}

// value reads one value. V is zero, so that null changes nothing but for types
// that read it themselves.
func (d *decoder) value(p *plan, v reflect.Value) bool {
	if d.next() == 'n' && p.kind >= text && p.kind <= object {
		return d.word("null")
	}
	switch p.kind {
	case text:
		s, ok := d.chars()
		if ok {
			v.SetString(string(s))
		}
		return ok
	case truth:
		yes := d.next() == 't'
		v.SetBool(yes)
		return yes && d.word("true") || !yes && d.word("false")
	case whole:
		n, ok := d.whole()
		if !ok || v.OverflowInt(n) {
			return false
		}
		v.SetInt(n)
		return true
	case pointer:
		to := reflect.New(p.below.of)
		v.Set(to)
		return d.value(p.below, to.Elem())
	case list:
		return d.list(p, v)
	case dictionary:
		return d.dictionary(p, v)
	case object:
		return d.object(p, v)
	}
	return d.particular(p, v)
}

// particular reads types that are not what they look like.
func (d *decoder) particular(p *plan, v reflect.Value) bool {
	d.next()
	begin := d.at
	switch p.kind {
	case other:
		return false
	case quantity:
		return d.quantity(v.Addr().Interface().(*resource.Quantity))
	case port:
		return d.port(v.Addr().Interface().(*intstr.IntOrString))
	}
	if !d.skip() {
		return false
	}
	item := d.text[begin:d.at:d.at]
	switch p.kind {
	case raw:
		v.SetBytes(item)
	case custom:
		return v.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(item) == nil
	}
	return true
}

// whole reads an integer that is written as one.
func (d *decoder) whole() (int64, bool) {
	n, ok := d.number()
	if !ok {
		return 0, false
	}
	out, err := strconv.ParseInt(string(n), 10, 64)
	return out, err == nil
}

func (d *decoder) quantity(q *resource.Quantity) bool {
	begin := d.at
	inside := []byte(nil)
	if d.next() == '"' {
		var ok bool
		if inside, _, ok = d.span(); !ok {
			return false
		}
	} else if !d.skip() {
		return false
	} else {
		inside = d.text[begin:d.at]
	}
	return !d.costly(inside) && q.UnmarshalJSON(d.text[begin:d.at]) == nil
}

func (d *decoder) port(p *intstr.IntOrString) bool {
	if d.next() == '"' {
		s, ok := d.chars()
		p.Type, p.StrVal = intstr.String, string(s)
		return ok
	}
	n, ok := d.whole()
	p.Type, p.IntVal = intstr.Int, int32(n)
	return ok && n == int64(p.IntVal)
}

// mostKept is how many places of a list are kept for the next.
const mostKept = 64

// list reads into a list that is used again, and copies that, so that none is longer
// than it has to be.
func (d *decoder) list(p *plan, v reflect.Value) bool {
	empty, ok := d.enter('[', ']')
	if empty {
		v.Set(reflect.MakeSlice(p.of, 0, 0))
	}
	if empty || !ok {
		return ok
	}
	used, _ := p.used.Get().(*reflect.Value)
	if used == nil {
		fresh := reflect.New(p.of).Elem()
		used = &fresh
	}
	for n := 1; ; n++ {
		if n > used.Cap() {
			used.Grow(1)
		}
		used.SetLen(n)
		if !d.value(p.below, used.Index(n-1)) {
			return false // and the list goes the way of all garbage
		}
		again, ok := d.more(']')
		if again {
			continue
		}
		v.Grow(n)
		v.SetLen(n)
		reflect.Copy(v, *used)
		if used.Clear(); used.Cap() <= mostKept {
			p.used.Put(used)
		}
		return ok
	}
}

func (d *decoder) object(p *plan, v reflect.Value) bool {
	empty, ok := d.enter('{', '}')
	if empty || !ok {
		return ok
	}
	var seen [mostFields / 64]uint64
	for {
		key, ok := d.chars()
		if !ok || !d.pass(':') {
			return false
		}
		if f := p.fields[string(key)]; f == nil {
			ok = d.skip()
		} else if word, bit := &seen[f.bit/64], uint64(1)<<(f.bit%64); *word&bit != 0 {
			return false
		} else {
			*word |= bit
			ok = d.value(f.plan, v.FieldByIndex(f.index))
		}
		if !ok {
			return false
		}
		if again, ok := d.more('}'); !again {
			return ok
		}
	}
}

func (d *decoder) dictionary(p *plan, v reflect.Value) bool {
	empty, ok := d.enter('{', '}')
	if !ok {
		return false
	}
	v.Set(reflect.MakeMap(p.of))
	if empty {
		return true
	}
	// The two that every pod has go without reflection.
	var member func(key []byte) bool
	switch m := v.Addr().Interface().(type) {
	case *map[string]string:
		member = func(key []byte) bool { return d.label(*m, key) }
	case *corev1.ResourceList:
		member = func(key []byte) bool { return d.resource(*m, key) }
	default:
		member = func(key []byte) bool { return d.member(p, v, key) }
	}
	for {
		key, ok := d.chars()
		if !ok || !d.pass(':') || !member(key) {
			return false
		}
		if again, ok := d.more('}'); !again {
			return ok
		}
	}
}

func (d *decoder) member(p *plan, v reflect.Value, name []byte) bool {
	key := reflect.New(p.of.Key()).Elem()
	key.SetString(string(name))
	if v.MapIndex(key).IsValid() {
		return false
	}
	value := reflect.New(p.below.of).Elem()
	if !d.value(p.below, value) {
		return false
	}
	v.SetMapIndex(key, value)
	return true
}

func (d *decoder) label(to map[string]string, key []byte) bool {
	if _, twice := to[string(key)]; twice || d.next() != '"' {
		return false
	}
	value, ok := d.chars()
	to[string(key)] = string(value)
	return ok
}

func (d *decoder) resource(to corev1.ResourceList, key []byte) bool {
	if _, twice := to[corev1.ResourceName(key)]; twice {
		return false
	}
	var q resource.Quantity
	d.next()
	ok := d.quantity(&q)
	to[corev1.ResourceName(key)] = q
	return ok
}
