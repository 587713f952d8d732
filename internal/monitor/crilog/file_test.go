package crilog

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

func TestComplete(t *testing.T) {
	for name, c := range map[string]struct {
		written string // of "entry\n", after "before\n"
		rename  bool
		want    string
	}{
		"nothing written": {"", false, "before\nentry\n"},
		"a part":          {"ent", false, "before\nentry\n"},
		"all":             {"entry\n", false, "before\nentry\n"},
		"all and more":    {"entry\nnext\n", false, "before\nentry\nnext\n"},
		"rotated since":   {"ent", true, "before\nentry\n"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			if err := os.WriteFile(path, []byte("before\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			l, err := Open(Target{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			place, err := placeOf(l.file)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.file.WriteString(c.written); err != nil {
				t.Fatal(err)
			}
			_ = l.Close()
			now := path
			if c.rename {
				now = path + ".1"
				if err := os.Rename(path, now); err != nil {
					t.Fatal(err)
				}
			}
			if err := Complete(Target{Path: path}, place, []byte("entry\n"), true); err != nil {
				t.Fatal(err)
			}
			if got, _ := os.ReadFile(now); string(got) != c.want {
				t.Errorf("%q, not %q", got, c.want)
			}
			if _, err := os.Stat(path); c.rename && !errors.Is(err, os.ErrNotExist) {
				t.Error("a new log was made")
			}
		})
	}
	if err := Complete(Target{Path: filepath.Join(t.TempDir(), "gone", "log")}, Place{Ino: 1}, []byte("x"), true); err != nil {
		t.Errorf("log that is gone: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	_ = os.Symlink(filepath.Join(dir, "target"), filepath.Join(dir, "link"))
	_ = unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600)
	for _, name := range []string{"link", "fifo", "."} {
		if _, err := Open(Target{Path: filepath.Join(dir, name)}); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "target")); err == nil {
		t.Error("the link was followed")
	}
}

func TestLaterMakesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := Later(Target{Path: path})
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error("the log was made")
	}
	if err := l.Append([]byte("x\n"), func(Place) {}, func() {}); err != nil {
		t.Error(err)
	}
	if got, _ := os.ReadFile(path); string(got) != "x\n" {
		t.Errorf("%q", got)
	}
}

// Containers may write below the folder of their pod's logs: no link there leads
// out of it, when a log is opened, opened again or completed. The folder itself
// may be a link.
func TestLinksBelowTheFolder(t *testing.T) {
	outside, parent := t.TempDir(), t.TempDir()
	dir := filepath.Join(parent, "pod")
	if err := os.Symlink(t.TempDir(), dir); err != nil {
		t.Fatal(err)
	}
	at := Target{Dir: dir, Path: filepath.Join(dir, "a", "b", "0.log")}
	l, err := Open(at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	place, err := placeOf(l.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := Complete(at, place, []byte("x\n"), false); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(at.Path); string(got) != "x\n" {
		t.Errorf("%q", got)
	}
	// The same file by another way, and the way led out.
	if err := os.Mkdir(filepath.Join(outside, "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(at.Path, filepath.Join(outside, "b", "0.log")); err != nil {
		t.Skipf("the temporary folders are on different file systems: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"opened again": l.Reopen(),
		"completed":    Complete(at, place, []byte("x\ny\n"), false),
		"opened":       func() error { _, err := Open(at); return err }(),
		"elsewhere":    func() error { _, err := Open(Target{Dir: dir, Path: filepath.Join(outside, "log")}); return err }(),
	} {
		if !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), "0.log") && name != "elsewhere" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, _ := os.ReadFile(filepath.Join(outside, "b", "0.log")); string(got) != "x\n" {
		t.Errorf("the link was followed: %q", got)
	}
}

// Two callers who rotate a log without knowing of each other end with the file
// that is at its path: what is opened first is never put in the place of what was
// opened later.
func TestReopenedByTwo(t *testing.T) {
	at := Target{Path: filepath.Join(t.TempDir(), "log")}
	l, err := Open(at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for round := range 3000 {
		var callers sync.WaitGroup
		for k := range 2 {
			callers.Go(func() {
				_ = os.Rename(at.Path, at.Path+"."+strconv.Itoa(k)) // the other may have done it
				if err := l.Reopen(); err != nil {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		there, err := os.Stat(at.Path)
		if err != nil {
			t.Fatal(err)
		}
		if used, err := l.file.Stat(); err != nil || !os.SameFile(there, used) {
			t.Fatalf("round %d: what was left is written to: %v", round, err)
		}
	}
}
