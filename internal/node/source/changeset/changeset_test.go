package changeset

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// has is what a folder holds, with what nobody should see.
func has(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			out[e.Name()] = "a folder"
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = string(data)
	}
	return out
}

func fill(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func held(t *testing.T, dir string) Held {
	t.Helper()
	h, err := New(dir).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

var (
	before  = map[string]string{"a": "old a", "b": "old b", "c": "old c"}
	changes = []Change{{Name: "a", Data: []byte("new a")}, {Name: "d", Data: []byte("new d")}, {Name: "b", Remove: true}, {Name: "e", Data: []byte{}}}
	after   = map[string]string{"a": "new a", "c": "old c", "d": "new d", "e": ""}
)

func TestChange(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, before)
	h := held(t, dir)
	if err := h.Change(); err != nil {
		t.Error(err)
	}
	if err := h.Change(changes...); err != nil {
		t.Fatal(err)
	}
	if got := has(t, dir); !maps.Equal(got, after) {
		t.Errorf("%q", got)
	}
	if err := errors.Join(h.Change(Change{Name: "c", Remove: true}), h.Change(Change{Name: "f", Data: []byte("f")})); err != nil {
		t.Error(err)
	}
	if got, want := has(t, dir), map[string]string{"a": "new a", "d": "new d", "e": "", "f": "f"}; !maps.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := h.Changed(); !slices.Equal(got, []string{"a", "d", "b", "e", "c", "f"}) || h.Changed() != nil {
		t.Errorf("%q are said to have changed", got)
	}
	if info, err := os.Stat(filepath.Join(dir, "a")); err != nil || info.Mode() != 0o600 {
		t.Errorf("others may read it: %v, %v", info, err)
	}
}

// TestFails changes nothing where one of the files cannot be changed, and says which.
func TestFails(t *testing.T) {
	for name, tt := range map[string]struct {
		list []Change
		want string
	}{
		"a folder":         {[]Change{{Name: "a", Data: []byte("x")}, {Name: "folder", Data: []byte("x")}}, "folder: is a folder"},
		"one folder":       {[]Change{{Name: "folder", Data: []byte("x")}}, "folder: "},
		"not there":        {[]Change{{Name: "a", Data: []byte("x")}, {Name: "x", Remove: true}}, "x: no such file"},
		"one not there":    {[]Change{{Name: "x", Remove: true}}, "x: no such file"},
		"twice":            {[]Change{{Name: "x", Data: []byte("x")}, {Name: "x", Data: []byte("y")}}, "x: file exists"},
		"elsewhere":        {[]Change{{Name: "a", Remove: true}, {Name: "../x", Data: []byte("x")}}, `"../x" is no name`},
		"one elsewhere":    {[]Change{{Name: "../x", Data: []byte("x")}}, `"../x" is no name`},
		"the record":       {[]Change{{Name: record, Data: []byte("x")}}, `".change" is no name`},
		"no name":          {[]Change{{}}, `"" is no name`},
		"a name too long":  {[]Change{{Name: "a", Remove: true}, {Name: strings.Repeat("x", 253), Data: []byte("x")}}, "x: file name too long"},
		"a folder removed": {[]Change{{Name: "a", Remove: true}, {Name: "folder", Remove: true}}, "folder: is a folder"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fill(t, dir, before)
			if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
				t.Fatal(err)
			}
			want := has(t, dir)
			err := held(t, dir).Change(tt.list...)
			var e *Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), tt.want) || e.Undo != nil {
				t.Errorf("%v, want %s", err, tt.want)
			}
			if got := has(t, dir); !maps.Equal(got, want) {
				t.Errorf("there is %q", got)
			}
		})
	}
}

// TestPutBack has a rename fail after others were done.
func TestPutBack(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, before)
	f := held(t, dir).f
	if err := f.begin(changes); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "e"), 0o700); err != nil { // where a file is to be
		t.Fatal(err)
	}
	err := f.perform(changes)
	var e *Error
	if !errors.As(err, &e) || e.Name != "e" || e.Undo != nil {
		t.Errorf("%v", err)
	}
	if got := has(t, dir); !maps.Equal(got, before) {
		t.Errorf("there is %q", got)
	}
}

// TestCutOff ends a process after each of the renames, and puts back what it has done; and
// ends that one as well.
func TestCutOff(t *testing.T) {
	for done := range len(changes) + 1 {
		for undone := range 3 {
			t.Run(fmt.Sprintf("%d, %d", done, undone), func(t *testing.T) {
				dir := t.TempDir()
				fill(t, dir, before)
				f := held(t, dir).f
				if err := f.begin(changes); err != nil {
					t.Fatal(err)
				}
				for _, c := range changes[:done] {
					if c.Remove {
						_ = os.Remove(f.at(c.Name))
					} else {
						_ = os.Rename(f.at(record, next+c.Name), f.at(c.Name))
					}
				}
				for _, step := range [][2]string{{"a", old + "a"}, {"b", old + "b"}}[:undone] {
					_ = os.Rename(f.at(record, step[1]), f.at(step[0]))
				}
				held(t, dir).Release()
				if got := has(t, dir); !maps.Equal(got, before) {
					t.Errorf("there is %q", got)
				}
			})
		}
	}
}

// TestLeft removes what is left of changes that have not begun, or are done.
func TestLeft(t *testing.T) {
	for _, name := range []string{draft, spent} {
		dir := t.TempDir()
		fill(t, dir, before)
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		fill(t, filepath.Join(dir, name), map[string]string{old + "a": "x", none + "b": "", next + "c": "x"})
		held(t, dir).Release()
		if got := has(t, dir); !maps.Equal(got, before) {
			t.Errorf("%s: there is %q", name, got)
		}
	}
}

// TestCannotBePutBack says so, to everybody who wants the folder, until it can.
func TestCannotBePutBack(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, before)
	f := held(t, dir).f
	if err := f.begin(changes); err != nil {
		t.Fatal(err)
	}
	stuck := filepath.Join(dir, "e", "x")
	if err := os.MkdirAll(stuck, 0o700); err != nil {
		t.Fatal(err)
	}
	var e *Error
	if err := f.perform(changes); !errors.As(err, &e) || e.Undo == nil {
		t.Errorf("%v", err)
	}
	next := New(dir)
	for range 2 {
		if _, err := next.Lock(t.Context()); err == nil || !strings.Contains(err.Error(), record+" has what they were") {
			t.Errorf("%v", err)
		}
	}
	if err := os.Remove(stuck); err != nil {
		t.Fatal(err)
	}
	h, err := next.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := has(t, dir); !maps.Equal(got, before) {
		t.Errorf("there is %q", got)
	}
	if err := h.Change(changes...); err != nil || !maps.Equal(has(t, dir), after) {
		t.Errorf("%v", err)
	}
}

// TestFullDisk changes nothing where there is no room, and puts back without any.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("nothing can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	fill(t, dir, before)
	large := append(changes[:2:2], Change{Name: "large", Data: make([]byte, 1<<20)})
	if err := held(t, dir).Change(large...); !errors.Is(err, unix.ENOSPC) {
		t.Error(err)
	}
	if got := has(t, dir); !maps.Equal(got, before) {
		t.Errorf("there is %q", got)
	}
	f := held(t, dir).f
	if err := f.begin(changes); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "full"), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "e"), 0o700); err != nil {
		t.Fatal(err)
	}
	var e *Error
	if err := f.perform(changes); !errors.As(err, &e) || e.Undo != nil {
		t.Error(err)
	}
	got := has(t, dir)
	delete(got, "full")
	if !maps.Equal(got, before) {
		t.Errorf("there is %q", got)
	}
}

// TestReadOnly lets those read who cannot write.
func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY, ""); err != nil {
		t.Skipf("nothing can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	h := held(t, dir)
	for _, list := range [][]Change{changes[:1], changes} {
		if err := h.Change(list...); !errors.Is(err, unix.EROFS) {
			t.Error(err)
		}
	}
}

// TestLock lets one in at a time, and nobody wait for longer than they want to.
func TestLock(t *testing.T) {
	f := New(filepath.Join(t.TempDir(), "not there yet"))
	h, err := f.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Lock(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	h.Release()
	if h, err = f.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.Release()
}
