package files

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func texts(pairs ...string) map[string]File {
	out := map[string]File{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = File{Data: []byte(pairs[i+1]), Mode: 0o640}
	}
	return out
}

func publish(dir string, files map[string]File) (changed bool, err error) {
	return Folder{Path: dir}.Publish(files)
}

// shown is what a container sees: everything that can be opened by a name which
// does not begin with "..".
func shown(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), reserved) {
			continue
		}
		top, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name()))
		if os.IsNotExist(err) {
			continue // a link whose file is not there any more
		}
		if err != nil {
			t.Fatal(err)
		}
		err = filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				var data []byte
				data, err = os.ReadFile(path)
				out[e.Name()+strings.TrimPrefix(path, top)] = string(data)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func text(files map[string]File) map[string]string {
	out := map[string]string{}
	for name, f := range files {
		out[name] = string(f.Data)
	}
	return out
}

// layout is what is in the folder itself, without versions that are not valid.
func checkLayout(t *testing.T, dir string, files map[string]File) {
	t.Helper()
	want := map[string]bool{dataLink: true}
	for name := range files {
		first, _, _ := strings.Cut(name, "/")
		want[first] = true
	}
	valid, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil {
		t.Fatal(err)
	}
	want[valid] = true
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if !want[e.Name()] {
			t.Errorf("%s is left", e.Name())
		}
		delete(want, e.Name())
	}
	for name := range want {
		t.Errorf("%s is missing", name)
	}
}

// An agent may be killed after each step. A container then sees the old version or
// the new one, file by file, and the next attempt ends it, whatever it is to be.
func TestPublishMayBeInterrupted(t *testing.T) {
	older := texts("same", "1", "changed", "old", "gone", "old", "dir/a", "old", "dir/b", "old", "olddir/x", "old")
	newer := texts("same", "1", "changed", "new", "added", "new", "dir/a", "new", "dir/c", "new", "newdir/y", "new")
	const steps = 6
	for done := range steps + 1 {
		for name, next := range map[string]map[string]File{"again": newer, "back": older, "other": texts("x", "y")} {
			dir := filepath.Join(t.TempDir(), "v")
			if _, err := publish(dir, older); err != nil {
				t.Fatal(err)
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			v := &version{Folder: Folder{Path: dir}, root: root, files: newer}
			if len(v.steps()) != steps {
				t.Fatalf("%d steps", len(v.steps()))
			}
			for i, step := range v.steps()[:done] {
				if err := step(); err != nil {
					t.Fatal(err)
				}
				checkMix(t, i, shown(t, dir), text(older), text(newer))
			}
			_ = root.Close()
			if _, err := publish(dir, next); err != nil {
				t.Fatalf("after %d steps, %s: %v", done, name, err)
			}
			if got := shown(t, dir); !maps.Equal(got, text(next)) {
				t.Errorf("after %d steps, %s: %v", done, name, got)
			}
			checkLayout(t, dir, next)
		}
	}
}

// checkMix wants what both versions have to come from one of them, and nothing that
// neither has. Only names that one of them lacks may come early or late.
func checkMix(t *testing.T, step int, got, older, newer map[string]string) {
	t.Helper()
	from := older
	if got["changed"] == "new" {
		from = newer
	}
	for name, want := range from {
		_, old := older[name]
		_, fresh := newer[name]
		if old && fresh && got[name] != want {
			t.Errorf("step %d: %s is %q, want %q", step, name, got[name], want)
		}
	}
	for name, is := range got {
		if from[name] != is {
			t.Errorf("step %d: %s is %q, want %q", step, name, is, from[name])
		}
	}
}

// A kill in the middle of writing leaves a folder with a part of the files, which is
// never shown and is swept away.
func TestPublishAfterHalfAVersion(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "v")
	half := filepath.Join(dir, "..2026_01_01_00_00_00.1")
	if err := os.MkdirAll(half, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{nextLink: filepath.Base(half), linkTemp: "nowhere"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	files := texts("a", "1", "b/c", "2")
	if changed, err := publish(dir, files); err != nil || !changed {
		t.Fatal(changed, err)
	}
	if got := shown(t, dir); !maps.Equal(got, text(files)) {
		t.Error(got)
	}
	checkLayout(t, dir, files)
}

func TestPublishWritesNothingThatIsThere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "v")
	files := texts("a", "1", "b/c", "2")
	if changed, err := publish(dir, files); err != nil || !changed {
		t.Fatal(changed, err)
	}
	valid, _ := os.Readlink(filepath.Join(dir, dataLink))
	if changed, err := publish(dir, files); err != nil || changed {
		t.Fatal(changed, err)
	}
	if now, _ := os.Readlink(filepath.Join(dir, dataLink)); now != valid {
		t.Error("it was written again")
	}
	for what, next := range map[string]map[string]File{
		"data": texts("a", "2", "b/c", "2"), "mode": {"a": {Data: []byte("1"), Mode: 0o600}, "b/c": files["b/c"]},
		"less": texts("a", "1"), "more": texts("a", "1", "b/c", "2", "d", "3"), "none": {},
	} {
		if changed, err := publish(dir, next); err != nil || !changed {
			t.Errorf("%s: %v %v", what, changed, err)
		}
		if got := slices.Sorted(maps.Keys(shown(t, dir))); !slices.Equal(got, slices.Sorted(maps.Keys(next))) {
			t.Errorf("%s: %v", what, got)
		}
		if changed, err := publish(dir, files); err != nil || !changed {
			t.Errorf("back from %s: %v %v", what, changed, err)
		}
	}
}

// There may be no room. What was begun is taken back, and what was there stays.
func TestPublishThatFailsLeavesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount")
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(dir, 0) }()
	small := texts("a", "1")
	if _, err := publish(dir, small); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := publish(dir, texts("a", "2", "large", strings.Repeat("x", 1<<20))); !errors.Is(err, unix.ENOSPC) {
			t.Error(err)
		}
		checkLayout(t, dir, small)
	}
	if got := shown(t, dir); !maps.Equal(got, text(small)) {
		t.Error(got)
	}
	if changed, err := publish(dir, texts("a", "3")); err != nil || !changed {
		t.Error(changed, err)
	}
}

// What an earlier release wrote has files in the place of links.
func TestPublishReplacesPlainFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "v")
	for name, data := range map[string]string{"a": "old", "b/c": "old"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files := texts("a", "1", "b/c", "2")
	if changed, err := publish(dir, files); err != nil || !changed {
		t.Fatal(changed, err)
	}
	checkLayout(t, dir, files)
	if got := shown(t, dir); !maps.Equal(got, text(files)) {
		t.Error(got)
	}
}
