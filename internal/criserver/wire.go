package criserver

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// wire is a part of a protobuf message as it is sent. What lists have thousands of
// is written by hand, because messages of Go's library cost many times as much:
// an allocation for each of their messages, and reflection, twice, for each label.
type wire []byte

// wireField is the number of a field, as api.proto of the CRI has it.
type wireField = protowire.Number

// attach makes encoded fields a part of a message. The library keeps them as what
// it does not know and sends them on as they are; the caller sees no difference.
func attach[M proto.Message](to M, fields wire) M {
	to.ProtoReflect().SetUnknown([]byte(fields))
	return to
}

// text leaves out what is empty, as do the others what is zero: that is what the
// reader takes for it.
func (w *wire) text(field wireField, s string) {
	if s != "" {
		w.item(field, s)
	}
}

// item is a text of a list, where an empty one counts.
func (w *wire) item(field wireField, s string) {
	*w = protowire.AppendTag(*w, field, protowire.BytesType)
	*w = protowire.AppendString(*w, s)
}

func (w *wire) number(field wireField, n uint64) {
	if n != 0 {
		*w = protowire.AppendTag(*w, field, protowire.VarintType)
		*w = protowire.AppendVarint(*w, n)
	}
}

func (w *wire) real(field wireField, f float64) {
	if f != 0 {
		*w = protowire.AppendTag(*w, field, protowire.Fixed64Type)
		*w = protowire.AppendFixed64(*w, math.Float64bits(f))
	}
}

// value is a UInt64Value. It is left out if it was not measured: a zero would say
// that there is none.
func (w *wire) value(field wireField, n *uint64) {
	if n != nil {
		w.message(field, func() { w.number(1, *n) })
	}
}

func (w *wire) texts(field wireField, m map[string]string) {
	for k, v := range m {
		w.message(field, func() {
			w.text(1, k)
			w.text(2, v)
		})
	}
}

// encodeLabels writes labels, and annotations as the field after it.
func encodeLabels(field wireField, labels, annotations map[string]string) wire {
	w := make(wire, 0, sizeOf(labels)+sizeOf(annotations))
	w.texts(field, labels)
	w.texts(field+1, annotations)
	return w
}

// sizeOf is what a map takes, with room for the lengths in it.
func sizeOf(m map[string]string) (n int) {
	for k, v := range m {
		n += len(k) + len(v) + 8
	}
	return n
}

// message is one whose fields are written by the function.
func (w *wire) message(field wireField, fields func()) {
	*w = protowire.AppendTag(*w, field, protowire.BytesType)
	*w = append(*w, 0) // for the length, which is known later and seldom longer
	from := len(*w)
	fields()
	size := uint64(len(*w) - from)
	if more := protowire.SizeVarint(size) - 1; more > 0 {
		*w = append(*w, make([]byte, more)...)
		copy((*w)[from+more:], (*w)[from:])
	}
	binary.PutUvarint((*w)[from-1:], size)
}
