package cpuprofile

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
)

// Profile is what the program was found doing.
type Profile struct {
	Samples []Sample
}

// Sample is one way of calls, and how often the program was on it.
type Sample struct {
	// Stack has the names of functions, the innermost first.
	Stack []string
	Count int64
}

// Count is the number of all samples.
func (p *Profile) Count() int64 {
	var n int64
	for _, s := range p.Samples {
		n += s.Count
	}
	return n
}

// The numbers of fields in profile.proto of github.com/google/pprof.
const (
	profileSample, profileLocation, profileFunction, profileString = 2, 4, 5, 6
	sampleLocation, sampleValue                                    = 1, 2
	locationID, locationLine                                       = 1, 4
	lineFunction                                                   = 1
	functionID, functionName                                       = 1, 2
)

// Decode reads a profile as runtime/pprof writes it: the first value of a sample
// is its count, and the names of functions are in it.
func Decode(packed []byte) (*Profile, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("unpack a profile: %w", err)
	}
	raw, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("unpack a profile: %w", err)
	}
	d := decoder{lines: map[uint64][]uint64{}, names: map[uint64]uint64{}}
	if err := eachField(raw, d.top); err != nil {
		return nil, fmt.Errorf("read a profile: %w", err)
	}
	return d.profile()
}

// decoder is a profile whose parts still name each other by number.
type decoder struct {
	samples []rawSample
	lines   map[uint64][]uint64 // location to functions, the innermost first
	names   map[uint64]uint64   // function to string
	strings []string
}

type rawSample struct{ locations, values []uint64 }

// field is one field of a message: bytes if it has any, or else a number.
type field struct {
	number protowire.Number
	bytes  []byte
	value  uint64
}

// eachField goes through a message. Profiles have numbers and bytes only.
func eachField(message []byte, do func(field) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		f := field{number: number}
		switch kind {
		case protowire.VarintType:
			f.value, n = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(message)
		default:
			return fmt.Errorf("field %d has wire type %d", number, kind)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		if err := do(f); err != nil {
			return err
		}
	}
	return nil
}

// numbers are the values of a repeated field, packed or not.
func (f field) numbers() (out []uint64) {
	if f.bytes == nil {
		return []uint64{f.value}
	}
	for rest := f.bytes; len(rest) > 0; {
		v, n := protowire.ConsumeVarint(rest)
		if n < 0 {
			return out
		}
		out, rest = append(out, v), rest[n:]
	}
	return out
}

func (d *decoder) top(f field) error {
	switch f.number {
	case profileString:
		d.strings = append(d.strings, string(f.bytes))
	case profileSample:
		var s rawSample
		err := eachField(f.bytes, func(f field) error {
			switch f.number {
			case sampleLocation:
				s.locations = append(s.locations, f.numbers()...)
			case sampleValue:
				s.values = append(s.values, f.numbers()...)
			}
			return nil
		})
		d.samples = append(d.samples, s)
		return err
	case profileFunction:
		var id, name uint64
		err := eachField(f.bytes, func(f field) error {
			switch f.number {
			case functionID:
				id = f.value
			case functionName:
				name = f.value
			}
			return nil
		})
		d.names[id] = name
		return err
	case profileLocation:
		return d.location(f.bytes)
	}
	return nil
}

// location reads one place in the program, where several functions are if the
// compiler has put some into others.
func (d *decoder) location(message []byte) error {
	var id uint64
	var functions []uint64
	err := eachField(message, func(f field) error {
		switch f.number {
		case locationID:
			id = f.value
		case locationLine:
			return eachField(f.bytes, func(f field) error {
				if f.number == lineFunction {
					functions = append(functions, f.value)
				}
				return nil
			})
		}
		return nil
	})
	d.lines[id] = functions
	return err
}

func (d *decoder) profile() (*Profile, error) {
	p := &Profile{}
	for _, raw := range d.samples {
		if len(raw.values) == 0 {
			return nil, errors.New("read a profile: a sample has no value")
		}
		s := Sample{Count: int64(raw.values[0])}
		for _, l := range raw.locations {
			for _, f := range d.lines[l] {
				name := d.names[f]
				if name >= uint64(len(d.strings)) {
					return nil, errors.New("read a profile: a function has no name")
				}
				s.Stack = append(s.Stack, d.strings[name])
			}
		}
		p.Samples = append(p.Samples, s)
	}
	return p, nil
}
