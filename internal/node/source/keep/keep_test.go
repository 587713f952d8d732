package keep

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestFolder(t *testing.T) {
	f := Folder(filepath.Join(t.TempDir(), "kept"))
	if got, err := f.Load(); got != nil || err != nil {
		t.Errorf("a folder that does not exist: %v, %v", got, err)
	}
	one := Copy{Name: "/etc/" + strings.Repeat("long", 200), Data: []byte("\x00a")}
	two := Copy{Name: "https://example.org/pods", Data: []byte("b"), Tag: `"1"`}
	for _, c := range []Copy{one, {Name: two.Name}, two} {
		if err := f.Save(c); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(f.path(one.Name))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others can read it: %v, %v", info, err)
	}
	got, err := f.Load()
	if err != nil || len(got) != 2 {
		t.Fatalf("%v, %v", got, err)
	}
	if got[0].Name != one.Name {
		got[0], got[1] = got[1], got[0]
	}
	if !reflect.DeepEqual(got, []Copy{one, two}) {
		t.Errorf("%+v", got)
	}
	// One that is damaged, and one that is not what its name says.
	if err := os.WriteFile(f.path(one.Name), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(f.path(two.Name), f.path("three")); err != nil {
		t.Fatal(err)
	}
	if err := f.Save(two); err != nil {
		t.Fatal(err)
	}
	got, err = f.Load()
	if len(got) != 1 || got[0].Name != two.Name || err == nil || strings.Count(err.Error(), "load kept manifest") != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	for range 2 {
		if err := f.Remove(two.Name); err != nil {
			t.Error(err)
		}
	}
	if got, _ := f.Load(); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestNowhere(t *testing.T) {
	var f Folder
	if err := f.Save(Copy{Name: "a"}); err != nil {
		t.Error(err)
	}
	if err := f.Remove("a"); err != nil {
		t.Error(err)
	}
	if got, err := f.Load(); got != nil || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}
