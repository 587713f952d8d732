package criserver

import (
	"fmt"
	"math"
	"path"
	"strings"

	"fairlead.run/internal/errdefs"
)

// decoder turns requests into domain types and keeps the first thing that is
// wrong with them, by the path of the field as the CRI names it.
type decoder struct {
	err error
}

func (d *decoder) fail(field, format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%s %s: %w", field, fmt.Sprintf(format, args...), errdefs.ErrInvalidArgument)
	}
}

// required is a text that must be there.
func (d *decoder) required(field, s string) string {
	if s == "" {
		d.fail(field, "is required")
	}
	return d.text(field, s)
}

// text is a string that the kernel can take: a NUL would cut it short.
func (d *decoder) text(field, s string) string {
	if i := strings.IndexByte(s, 0); i >= 0 {
		d.fail(field, "has a NUL byte at position %d", i)
	}
	return s
}

func (d *decoder) texts(field string, list []string) []string {
	for i, s := range list {
		if strings.IndexByte(s, 0) >= 0 {
			d.text(fmt.Sprintf("%s[%d]", field, i), s)
		}
	}
	return list
}

func (d *decoder) textMap(field string, m map[string]string) map[string]string {
	for k, v := range m {
		if strings.IndexByte(k, 0) >= 0 || strings.IndexByte(v, 0) >= 0 {
			d.fail(fmt.Sprintf("%s[%q]", field, k), "has a NUL byte")
		}
	}
	return m
}

// absolute is a path from the root of the host, or "".
func (d *decoder) absolute(field, p string) string {
	if p != "" && !path.IsAbs(p) {
		d.fail(field, "is %q; it must be an absolute path", p)
	}
	return d.text(field, p)
}

// id is a user or group id.
func (d *decoder) id(field string, v int64) int64 {
	if v < 0 || v >= math.MaxUint32 { // the largest means "no change" to the kernel
		d.fail(field, "is %d; ids go from 0 to %d", v, math.MaxUint32-1)
	}
	return v
}

// port is a port number; 0 means none.
func (d *decoder) port(field string, v int32) uint16 {
	if v < 0 || v > math.MaxUint16 {
		d.fail(field, "is %d; ports go from 1 to %d", v, math.MaxUint16)
		return 0
	}
	return uint16(v)
}

// lookup decodes an enum. Values that this version of the CRI does not know
// are refused, because nobody can say what they would have meant.
func lookup[K ~int32, V any](d *decoder, field string, names map[K]V, v K) V {
	out, ok := names[v]
	if !ok {
		d.fail(field, "is %d, which this version of Fairlead does not know", v)
	}
	return out
}

// reverse is the map that encodes what m decodes.
func reverse[K, V comparable](m map[K]V) map[V]K {
	out := make(map[V]K, len(m))
	for k, v := range m {
		out[v] = k
	}
	return out
}
