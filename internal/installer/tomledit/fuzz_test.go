package tomledit

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// seeds are files as admins, tools and nobody would write them.
func seeds(f *testing.F) {
	f.Helper()
	for _, data := range files {
		f.Add(data)
	}
	for _, data := range []string{
		"imports.x = 1\n", "[imports]\na = 1\n", "[[imports]]\n", "\"imports\" = [ '/a' ,\n]\n", "imports = [[\"a\"], {b = 1}]\n",
		"a = \"\"\"\n[z.b]\n\"\"\"\n[z.b]\nc = 1\n", "z.b.c = 1 # why\nz.b.d = [\n1, # one\n]\n", "[z]\nb = {c = 1}\n", "[[z.b]]\n[[z.b]]\n", "[z.b]", "# fairlead: end b\n",
	} {
		f.Add(data)
	}
}

// What is added and taken out again leaves every byte as it was, and meanwhile all
// bytes of others are there, in their order.
func FuzzEdit(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data string) {
		file, err := Parse("f", []byte(data))
		if err != nil || HasBlock([]byte(data), "b") || strings.Contains(data, "/zz") {
			return
		}
		with, err := AddBlock("f", []byte(data), "b", "# x\n")
		if err == nil {
			if !strings.HasPrefix(string(with), data) {
				t.Fatalf("with a block it is %q", with)
			}
			out, err := CutBlock("f", with, "b")
			if err != nil || string(out) != data {
				t.Fatalf("a block leaves %q: %v", out, err)
			}
		}
		with, err = file.AddElement("imports", "/zz")
		if err != nil {
			return
		}
		after, err := Parse("f", with)
		if err != nil {
			t.Fatalf("with an element it is no TOML: %v\n%q", err, with)
		}
		if !inserted(data, string(with)) {
			t.Fatalf("an element makes %q of %q", with, data)
		}
		list, _ := file.Get("imports").([]any)
		if got := after.Get("imports"); !reflect.DeepEqual(got, slices.Concat([]any{"/zz"}, list)) {
			t.Fatalf("the list is %v, and was %v", got, list)
		}
		if out := after.CutElement("imports", "/zz"); string(out) != data {
			t.Fatalf("an element leaves %q of %q", out, data)
		}
	})
}

// inserted says whether a text is another one with something put in at one place.
func inserted(old, with string) bool {
	n := 0
	for n < len(old) && n < len(with) && old[n] == with[n] {
		n++
	}
	return len(with) > len(old) && strings.HasSuffix(with, old[n:])
}

// A table goes with all that is below it, and everything else stays: the same lines,
// and the same values.
func FuzzCutTables(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data string) {
		file, err := Parse("f", []byte(data))
		if err != nil {
			return
		}
		file.Line("z", "b")
		_ = file.Closed("z", "b", "c")
		out, err := file.CutTables("z", "b")
		if err != nil {
			return
		}
		again, err := Parse("f", out)
		if err != nil || again.Get("z", "b") != nil {
			t.Fatalf("left is %q of %q: %v", out, data, err)
		}
		old := bytes.SplitAfter([]byte(data), []byte("\n"))
		for _, line := range bytes.SplitAfter(out, []byte("\n")) {
			at := slices.IndexFunc(old, func(l []byte) bool { return bytes.Equal(l, line) })
			if len(line) == 0 {
				continue // behind the last line's end
			}
			if at < 0 {
				t.Fatalf("the line %q of %q is new, or in another place", line, out)
			}
			old = old[at+1:]
		}
		for key, value := range file.Keys() {
			if key != "z" && !reflect.DeepEqual(again.Get(key), value) {
				t.Fatalf("%q is %v, and was %v", key, again.Get(key), value)
			}
		}
	})
}

// What is quoted is read back as it was.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "a b", `"\`, "ü\u00ad\U000e0001", "\xff", "\x00\a\v\n\x7f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if q := Quote(s); strings.ContainsFunc(q, unicode.IsControl) || strings.Contains(q, `\x`) && !strings.Contains(s, `\`) {
			t.Fatalf("%q is written as %s, which older readers do not take", s, q)
		}
		file, err := Parse("f", []byte("v = "+Quote(s)+"\n"))
		want := strings.ToValidUTF8(s, "\uFFFD")
		if err != nil || file.Get("v") != want {
			t.Fatalf("%q is read as %q: %v", s, file.Get("v"), err)
		}
		if file, err = Parse("f", []byte("["+Path("t", want)+"]\n")); err != nil || file.Table("t", want) == nil {
			t.Fatalf("the key %q is read as %v: %v", s, file.Keys(), err)
		}
	})
}
