package shelf

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"fairlead.run/api/config/v1alpha1"
)

func write0(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, s *Shelf, def v1alpha1.Handler, source string, known ...Revision) Revision {
	t.Helper()
	r, err := s.Put("mine", def, source, known)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRevisions(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "handlers")
	program := filepath.Join(t.TempDir(), "runc")
	s, list, err := Open(dir)
	if err != nil || len(list) != 0 {
		t.Fatal(list, err)
	}
	write0(t, program, "\x7fELF one")
	one := put(t, s, v1alpha1.Handler{}, program)
	if again := put(t, s, v1alpha1.Handler{}, program, one); again.ID != one.ID {
		t.Errorf("the same is another revision: %+v", again)
	}
	now := time.Now().Add(time.Hour)
	if err := os.Chtimes(program, now, now); err != nil {
		t.Fatal(err)
	}
	if again := put(t, s, v1alpha1.Handler{}, program, one); again.ID != one.ID || again.File == one.File {
		t.Errorf("the same with another time: %+v", again)
	}
	other := put(t, s, v1alpha1.Handler{Args: []string{"--debug"}}, program, one)
	write0(t, program, "\x7fELF two")
	two := put(t, s, v1alpha1.Handler{}, program, one, other)
	if one.ID == two.ID || one.ID == other.ID || two.ID == other.ID {
		t.Errorf("revisions %s, %s and %s", one.ID, other.ID, two.ID)
	}
	if text, err := os.ReadFile(one.Program); err != nil || string(text) != "\x7fELF one" {
		t.Errorf("the copy is %q, %v", text, err)
	}
	if err := s.Drop(other); err != nil {
		t.Error(err)
	}
	if err := s.Drop(other); err != nil {
		t.Errorf("what is gone: %v", err)
	}
	two.Removed = time.Now().UTC().Truncate(time.Second)
	if err := s.Save(two); err != nil {
		t.Fatal(err)
	}
	_, list, err = Open(dir)
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v %v", list, err)
	}
	for _, r := range list {
		if r.ID == two.ID && !reflect.DeepEqual(r, two) {
			t.Errorf("got %+v, want %+v", r, two)
		}
	}
}

// A script stays where it is: it may need what is beside it.
func TestScriptsAreNotCopied(t *testing.T) {
	dir := t.TempDir()
	s, _, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "run")
	write0(t, script, "#!/bin/sh\n")
	r := put(t, s, v1alpha1.Handler{}, script)
	if r.Program != script {
		t.Errorf("it runs from %s", r.Program)
	}
	write0(t, script, "#!/bin/sh\nexit 1\n")
	if now := put(t, s, v1alpha1.Handler{}, script, r); now.ID == r.ID {
		t.Error("another script is the same revision")
	}
}

// What a crash has left half made is removed, and what is broken is told.
func TestOpenAfterACrash(t *testing.T) {
	dir := t.TempDir()
	half, broken, moved := filepath.Join(dir, "mine", unmade+"1"), filepath.Join(dir, "mine", "2"), filepath.Join(dir, "mine", "3")
	for _, d := range []string{half, broken, moved} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write0(t, filepath.Join(half, recordFile), `{"handler":"mine","id":"1"}`)
	write0(t, filepath.Join(broken, recordFile), `{`)
	write0(t, filepath.Join(moved, recordFile), `{"handler":"other","id":"3"}`)
	s, list, err := Open(dir)
	if err == nil || len(list) != 0 {
		t.Errorf("%+v %v", list, err)
	}
	if err := s.Tidy(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(half); !os.IsNotExist(err) {
		t.Errorf("half a revision is left: %v", err)
	}
	if _, err := os.Stat(broken); err != nil {
		t.Errorf("what cannot be read was removed: %v", err)
	}
}

// A revision that was half removed and is kept again can be removed.
func TestDropAfterAFailure(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(t.TempDir(), "runc")
	s, _, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	write0(t, program, "\x7fELF one")
	r := put(t, s, v1alpha1.Handler{}, program)
	if err := os.Rename(filepath.Join(dir, "mine", r.ID), filepath.Join(dir, "mine", unmade+r.ID)); err != nil {
		t.Fatal(err)
	}
	if err := s.Drop(put(t, s, v1alpha1.Handler{}, program, r)); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
