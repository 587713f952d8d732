package tomledit

import (
	"reflect"
	"strings"
	"testing"
)

var files = map[string]string{
	"empty":          "",
	"comment":        "# only this\n",
	"crlf":           "version = 2\r\n# a\r\n[a]\r\nb = 1\r\n",
	"no end":         "version = 2\n[plugins]\n  [plugins.\"x.y\"] # why",
	"admin's":        "# head\n\nversion = 2 # two\n\n[plugins.\"x.y\".runtimes.runc]\n  # keep\n  type = \"io\"\n\n\n# tail\n",
	"imports":        "imports = [\"/a/*.toml\"] # mine\nversion = 3\n",
	"empty imports":  "imports=[]\n",
	"many lines":     "version = 3\nimports = [\n  \"/a\", # first\n  '/b',\n]\n[a]\n",
	"nested imports": "[a]\nimports = [\"/x\"]\n",
	"table first":    "[a]\nb = '''\n# fairlead: not this\n'''\n",
}

func parse(t *testing.T, data string) *File {
	t.Helper()
	f, err := Parse("config.toml", []byte(data))
	if err != nil {
		t.Fatalf("%v in:\n%s", err, data)
	}
	return f
}

func TestBlocksComeAndGo(t *testing.T) {
	body := "[plugins.\"x.y\".runtimes.runsc]\n  type = \"r\"\n"
	other := "[plugins.\"x.y\".runtimes.kata]\n  type = \"k\"\n"
	for name, data := range files {
		t.Run(name, func(t *testing.T) {
			one, err := AddBlock("f", []byte(data), "gvisor", body)
			if err != nil {
				t.Fatal(err)
			}
			if f := parse(t, string(one)); f.Get("plugins", "x.y", "runtimes", "runsc", "type") != "r" {
				t.Fatalf("it is not in\n%s", one)
			}
			if !strings.HasPrefix(string(one), data) {
				t.Fatalf("what was there has changed:\n%s", one)
			}
			same, err := AddBlock("f", one, "gvisor", body)
			if err != nil || string(same) != string(one) {
				t.Fatalf("a second time changes it: %v\n%s", err, same)
			}
			two, err := AddBlock("f", one, "kata", other)
			if err != nil {
				t.Fatal(err)
			}
			changed, err := AddBlock("f", two, "gvisor", strings.Replace(body, `"r"`, `"s"`, 1))
			if err != nil {
				t.Fatal(err)
			}
			if f := parse(t, string(changed)); f.Get("plugins", "x.y", "runtimes", "runsc", "type") != "s" {
				t.Fatalf("it was not replaced:\n%s", changed)
			}
			for _, order := range [][]string{{"gvisor", "kata"}, {"kata", "gvisor"}} {
				out := two
				for _, b := range order {
					if out, err = CutBlock("f", out, b); err != nil {
						t.Fatal(err)
					}
				}
				if string(out) != data {
					t.Errorf("without %v it is\n%q, want\n%q", order, out, data)
				}
			}
		})
	}
}

func TestNamesThatBeginAlike(t *testing.T) {
	data, err := AddBlock("f", nil, "kata-fc", "a = 1\n")
	if err != nil {
		t.Fatal(err)
	}
	if HasBlock(data, "kata") || !HasBlock(data, "kata-fc") {
		t.Fatal("kata is found in kata-fc")
	}
}

func TestHalfABlockIsRefused(t *testing.T) {
	data, err := AddBlock("f", nil, "gvisor", "a = 1\n")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(data), "\n")
	for _, half := range []string{lines[0] + lines[1], lines[1] + lines[2], lines[2] + lines[0]} {
		if _, err := CutBlock("f", []byte(half), "gvisor"); err == nil {
			t.Errorf("%q was cut", half)
		}
		if _, err := AddBlock("f", []byte(half), "gvisor", "a = 1\n"); err == nil {
			t.Errorf("%q was added to", half)
		}
	}
}

func TestTextBehindABlockStays(t *testing.T) {
	data, err := AddBlock("f", []byte("a = 1"), "x", "[b]\n")
	if err != nil {
		t.Fatal(err)
	}
	out, err := CutBlock("f", append(data, "[c]\n"...), "x")
	if err != nil || string(out) != "a = 1\n[c]\n" {
		t.Fatalf("%q %v", out, err)
	}
}

func TestElementsComeAndGo(t *testing.T) {
	for name, data := range files {
		t.Run(name, func(t *testing.T) {
			before := parse(t, data).Get("imports")
			one, err := parse(t, data).AddElement("imports", "/c/*.toml")
			if err != nil {
				t.Fatal(err)
			}
			f := parse(t, string(one))
			want := []any{"/c/*.toml"}
			if list, ok := before.([]any); ok {
				want = append(want, list...)
			}
			if got := f.Get("imports"); !reflect.DeepEqual(got, want) {
				t.Fatalf("it is %v, want %v, in\n%s", got, want, one)
			}
			if out := f.CutElement("imports", "/c/*.toml"); string(out) != data {
				t.Errorf("afterwards it is\n%q, want\n%q", out, data)
			}
		})
	}
	for _, other := range []string{"imports = 1\n", "imports = {}\n", "imports.a = 1\n", "[imports]\n", "[[imports]]\n", "[imports.a]\n"} {
		if _, err := parse(t, other).AddElement("imports", "x"); err == nil {
			t.Errorf("%q was added to", other)
		}
	}
	if got := parse(t, files["imports"]).CutElement("imports", "/no"); string(got) != files["imports"] {
		t.Error("something else was cut")
	}
}

func TestCutTables(t *testing.T) {
	data := `version = 2
[plugins.cri.runtimes]
runc.type = "a"
runsc.type = "b" # ours
# a comment
[plugins.cri.runtimes.runsc.options]
  x = [
    1,
  ]

[plugins.cri.runtimes.kata]
type = "c"
`
	want := `version = 2
[plugins.cri.runtimes]
runc.type = "a"
# a comment

[plugins.cri.runtimes.kata]
type = "c"
`
	out, err := parse(t, data).CutTables("plugins", "cri", "runtimes", "runsc")
	if err != nil || string(out) != want {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := parse(t, data).CutTables("plugins", "cri", "none"); err != nil || string(out) != data {
		t.Fatalf("what is not there was cut: %v", err)
	}
	if _, err := parse(t, "a = {b = {c = 1}}\n").CutTables("a", "b"); err == nil {
		t.Fatal("an inline table was taken apart")
	}
}

func TestClosedAndLine(t *testing.T) {
	for data, path := range map[string][]string{
		"a = {b = 1}\n":                {"a", "c"},
		"[plugins]\ncri = {}\n":        {"plugins", "cri", "runtimes"},
		"[plugins]\ncri.x = {a=1}\n":   {"plugins", "cri", "x", "y"},
		"[plugins]\ncri = 'nothing'\n": {"plugins", "cri", "x"},
		"[[plugins]]\n":                {"plugins", "cri", "x"},
		"[[plugins.cri]]\na = 1\n":     {"plugins", "cri", "x"},
	} {
		if parse(t, data).Closed(path...) == nil {
			t.Errorf("%q can be added to", data)
		}
	}
	f := parse(t, files["admin's"])
	if err := f.Closed("plugins", "x.y", "runtimes", "runsc"); err != nil {
		t.Error(err)
	}
	if got := f.Line("plugins", "x.y", "runtimes"); got != 5 {
		t.Errorf("line %d", got)
	}
	if f.Line("plugins", "z") != 0 {
		t.Error("a line of what is not there")
	}
	if got := Path("plugins", "x.y", `a"b`, ""); got != `plugins."x.y"."a\"b".""` {
		t.Error(got)
	}
}
