package cpuprofile

import (
	"bytes"
	"compress/gzip"
	"reflect"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// message builds one of the profile's messages.
type message []byte

func (m message) number(field protowire.Number, v uint64) message {
	return protowire.AppendVarint(protowire.AppendTag(m, field, protowire.VarintType), v)
}

func (m message) bytes(field protowire.Number, v []byte) message {
	return protowire.AppendBytes(protowire.AppendTag(m, field, protowire.BytesType), v)
}

func packed(numbers ...uint64) (out []byte) {
	for _, n := range numbers {
		out = protowire.AppendVarint(out, n)
	}
	return out
}

func zip(t *testing.T, raw []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(raw); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// made is a profile of main, which calls a, into which b was put.
func made() message {
	var m message
	line := func(function uint64) []byte { return message(nil).number(lineFunction, function) }
	m = m.bytes(profileSample, message(nil).bytes(sampleLocation, packed(1, 2)).bytes(sampleValue, packed(3, 30)))
	m = m.bytes(profileSample, message(nil).number(sampleLocation, 2).number(sampleValue, 1).number(sampleValue, 10)) // not packed
	m = m.bytes(profileLocation, message(nil).number(locationID, 1).bytes(locationLine, line(9)).bytes(locationLine, line(8)))
	m = m.bytes(profileLocation, message(nil).number(locationID, 2).bytes(locationLine, line(7)))
	for id, name := range map[uint64]uint64{7: 1, 8: 2, 9: 3} {
		m = m.bytes(profileFunction, message(nil).number(functionID, id).number(functionName, name))
	}
	for _, s := range []string{"", "main", "a", "b"} {
		m = m.bytes(profileString, []byte(s))
	}
	return m
}

func TestDecode(t *testing.T) {
	p, err := Decode(zip(t, made()))
	if err != nil {
		t.Fatal(err)
	}
	want := []Sample{{[]string{"b", "a", "main"}, 3}, {[]string{"main"}, 1}}
	if !reflect.DeepEqual(p.Samples, want) || p.Count() != 4 {
		t.Errorf("got %+v, want %+v", p.Samples, want)
	}
}

func TestDecodeOfWhatIsNoProfile(t *testing.T) {
	for name, data := range map[string][]byte{
		"nothing":     {},
		"no archive":  []byte("profile"),
		"cut off":     zip(t, made())[:40],
		"no message":  zip(t, []byte("\xff\xff\xff")),
		"no value":    zip(t, message(nil).bytes(profileSample, nil)),
		"no name":     zip(t, made()[:len(made())-3]), // the last name is missing
		"other types": zip(t, protowire.AppendFixed32(protowire.AppendTag(nil, 1, protowire.Fixed32Type), 1)),
	} {
		if p, err := Decode(data); err == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// compute takes processor time. What it returns keeps it from being left out.
func compute() (sum int) {
	for i := range 50_000_000 {
		sum ^= i * i
	}
	return sum
}

// What the runtime writes is what is read.
func TestDecodeOfARealProfile(t *testing.T) {
	var sum int
	for range 200 { // until a sample was taken in it
		var b bytes.Buffer
		if err := pprof.StartCPUProfile(&b); err != nil {
			t.Skip(err)
		}
		sum += compute()
		pprof.StopCPUProfile()
		p, err := Decode(b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range p.Samples {
			here := slices.IndexFunc(s.Stack, func(f string) bool { return strings.HasSuffix(f, "cpuprofile.TestDecodeOfARealProfile") })
			inner := slices.IndexFunc(s.Stack, func(f string) bool { return strings.HasSuffix(f, "cpuprofile.compute") })
			if inner >= 0 && here > inner && s.Count > 0 {
				t.Logf("%d samples of %d", s.Count, sum)
				return
			}
		}
	}
	t.Error("no sample has the functions that computed")
}
