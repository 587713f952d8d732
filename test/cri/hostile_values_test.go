package cri

import (
	"math"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A bad request is a good one with one field changed, or bytes that are no
// request at all.
type badRequest struct {
	field  string // as the CRI names it, with what was done to it
	change func(protoreflect.Message)
	raw    func([]byte) []byte // of what was encoded, unless nil
}

// from is the request, encoded, that a good one becomes.
func (b badRequest) from(good proto.Message) []byte {
	if b.change != nil {
		b.change(good.ProtoReflect())
	}
	out, err := proto.Marshal(good)
	if err != nil {
		panic(err)
	}
	if b.raw != nil {
		out = b.raw(out)
	}
	return out
}

// badRequests are one for each field of the message, however deep, and each
// value that a caller should not send.
func badRequests(d protoreflect.MessageDescriptor) []badRequest {
	instead := func(s string) func([]byte) []byte { return func([]byte) []byte { return []byte(s) } }
	behind := func(s string) func([]byte) []byte { return func(b []byte) []byte { return append(b, s...) } }
	w := walker{seen: map[protoreflect.FullName]bool{}, out: []badRequest{
		{field: "(empty)", raw: instead("")},
		{field: "(cut off)", raw: instead("\x0a\xff\xff\xff\x7fx")},
		{field: "(not UTF-8)", raw: instead("\x0a\x02\xff\xfe")},
		{field: "(unknown fields)", raw: behind(strings.Repeat("\xfa\x7f\x03abc", 10000))},
		{field: "(larger than any message)", raw: behind("\xfa\x7f\x80\x80\x80\x10" + strings.Repeat("x", 32<<20))},
	}}
	w.message(nil, "", d)
	return w.out
}

// walker visits all fields of a message type.
type walker struct {
	seen map[protoreflect.FullName]bool // the types that it is in
	out  []badRequest
}

// message visits the fields of a message that is found by the path.
func (w *walker) message(path []protoreflect.FieldDescriptor, name string, d protoreflect.MessageDescriptor) {
	if w.seen[d.FullName()] {
		return // a type within itself
	}
	w.seen[d.FullName()] = true
	defer delete(w.seen, d.FullName())
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		at := strings.TrimPrefix(name+"."+string(f.Name()), ".")
		switch {
		case f.IsMap():
			w.entries(path, at, f)
		case f.IsList():
			w.list(path, at, f)
		default:
			w.single(path, at, f)
		}
	}
}

// bad adds a request in which set has changed the message that has the field.
func (w *walker) bad(path []protoreflect.FieldDescriptor, name, what string, set func(protoreflect.Message)) {
	w.out = append(w.out, badRequest{field: name + " " + what, change: func(at protoreflect.Message) {
		for _, f := range path {
			if !f.IsList() {
				at = at.Mutable(f).Message()
				continue
			}
			list := at.Mutable(f).List()
			if list.Len() == 0 {
				list.AppendMutable()
			}
			at = list.Get(0).Message()
		}
		set(at)
	}})
}

func (w *walker) single(path []protoreflect.FieldDescriptor, name string, f protoreflect.FieldDescriptor) {
	if f.Kind() == protoreflect.MessageKind {
		w.bad(path, name, "absent", func(m protoreflect.Message) { m.Clear(f) })
		w.bad(path, name, "empty", func(m protoreflect.Message) { m.Set(f, m.NewField(f)) })
		w.message(append(path[:len(path):len(path)], f), name, f.Message())
		return
	}
	for what, v := range badValues(f) {
		w.bad(path, name, what, func(m protoreflect.Message) { m.Set(f, v) })
	}
}

const many = 5000

func (w *walker) list(path []protoreflect.FieldDescriptor, name string, f protoreflect.FieldDescriptor) {
	if f.Kind() == protoreflect.MessageKind {
		w.bad(path, name, "many empty", func(m protoreflect.Message) {
			for list := m.Mutable(f).List(); list.Len() < many; {
				list.AppendMutable()
			}
		})
		w.message(append(path[:len(path):len(path)], f), name+"[0]", f.Message())
		return
	}
	for what, v := range badValues(f) {
		w.bad(path, name, what, func(m protoreflect.Message) { m.Mutable(f).List().Append(v) })
	}
	w.bad(path, name, "many", func(m protoreflect.Message) {
		for list := m.Mutable(f).List(); list.Len() < many; {
			list.Append(ordinary(f))
		}
	})
}

func (w *walker) entries(path []protoreflect.FieldDescriptor, name string, f protoreflect.FieldDescriptor) {
	for what, v := range badValues(f.MapKey()) {
		w.bad(path, name, "key "+what, func(m protoreflect.Message) {
			m.Mutable(f).Map().Set(v.MapKey(), ordinary(f.MapValue()))
		})
	}
	if f.MapValue().Kind() == protoreflect.MessageKind {
		return
	}
	for what, v := range badValues(f.MapValue()) {
		w.bad(path, name, "value "+what, func(m protoreflect.Message) {
			m.Mutable(f).Map().Set(ordinary(f.MapKey()).MapKey(), v)
		})
	}
}

// ordinary is a value that has nothing odd about it but that nobody asked for it.
func ordinary(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("x")
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(1)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1)
	}
	panic("a list or map of " + f.Kind().String() + " is new to this test")
}

// badValues are values of the field's kind that no caller should send.
func badValues(f protoreflect.FieldDescriptor) map[string]protoreflect.Value {
	out := map[string]protoreflect.Value{}
	switch f.Kind() {
	case protoreflect.StringKind:
		for what, s := range map[string]string{
			"empty": "", "NUL": "a\x00b", "up": "../../../../../../../../hostile", "through proc": "/proc/self/root/../hostile\x01",
			"blank": " \n\t", "odd": "-rf $(id) `id` %s%n ${PATH} \u202e\"';", "long": strings.Repeat("x", 1<<20), "colons": ":::::", "number": "-1",
		} {
			out[what] = protoreflect.ValueOfString(s)
		}
	case protoreflect.BytesKind:
		out["long"] = protoreflect.ValueOfBytes(make([]byte, 1<<20))
	case protoreflect.BoolKind:
		out["true"] = protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		out["negative"], out["unknown"] = protoreflect.ValueOfEnum(-1), protoreflect.ValueOfEnum(99)
		out["next"] = protoreflect.ValueOfEnum(1)
	case protoreflect.Int32Kind:
		out["least"], out["minus one"], out["most"] = protoreflect.ValueOfInt32(math.MinInt32), protoreflect.ValueOfInt32(-1), protoreflect.ValueOfInt32(math.MaxInt32)
	case protoreflect.Int64Kind:
		out["least"], out["minus one"], out["most"] = protoreflect.ValueOfInt64(math.MinInt64), protoreflect.ValueOfInt64(-1), protoreflect.ValueOfInt64(math.MaxInt64)
		out["one"] = protoreflect.ValueOfInt64(1)
	case protoreflect.Uint32Kind:
		out["most"] = protoreflect.ValueOfUint32(math.MaxUint32)
	case protoreflect.Uint64Kind:
		out["most"] = protoreflect.ValueOfUint64(math.MaxUint64)
	case protoreflect.DoubleKind:
		out["NaN"], out["infinite"] = protoreflect.ValueOfFloat64(math.NaN()), protoreflect.ValueOfFloat64(math.Inf(-1))
	case protoreflect.FloatKind:
		out["NaN"] = protoreflect.ValueOfFloat32(float32(math.NaN()))
	}
	return out
}
