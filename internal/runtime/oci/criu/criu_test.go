package criu

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// fake puts a shell script in the place of criu and returns an environment that
// finds it.
func fake(t *testing.T, body string) (program string, env []string) {
	t.Helper()
	dir := t.TempDir()
	program = filepath.Join(dir, "criu")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+body), 0o755); err != nil {
		t.Fatal(err)
	}
	return program, []string{"PATH=/no/such/folder:" + dir + ":/usr/bin:/bin"}
}

func TestCheck(t *testing.T) {
	for name, tt := range map[string]struct{ body, want string }{
		"works":           {"[ \"$1\" = check ]", ""},
		"says why not":    {"echo 'Warn (a.c:1): x'; echo 'Error (criu/cr-check.c:42): no userfaultfd here' >&2; echo 'Error (b.c:2): then this'; exit 1", "says: no userfaultfd here; then this"},
		"says nothing":    {"exit 3", "exit status 3"},
		"cannot be run":   {"kill -9 $$", "killed"},
		"control in text": {"printf 'Error (a.c:1): bad\\tcolour \\033[1m\\n'; exit 1", "bad colour  [1m"},
	} {
		t.Run(name, func(t *testing.T) {
			_, env := fake(t, tt.body)
			err := new(Host).Check(t.Context(), env)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestNoCriu(t *testing.T) {
	env := []string{"PATH=" + t.TempDir()}
	if err := new(Host).Check(t.Context(), env); !errors.Is(err, errdefs.ErrNotFound) || !strings.Contains(err.Error(), "install it") {
		t.Errorf("%v", err)
	}
	if got := Fingerprint(env); got != "" {
		t.Errorf("it has the fingerprint %q", got)
	}
}

// One answer is enough for all handlers, until there is another criu.
func TestCheckIsRemembered(t *testing.T) {
	count := filepath.Join(t.TempDir(), "count")
	program, env := fake(t, "echo x >>"+count)
	var h Host
	for range 3 {
		if err := h.Check(t.Context(), env); err != nil {
			t.Fatal(err)
		}
	}
	if data, _ := os.ReadFile(count); string(data) != "x\n" {
		t.Errorf("criu was run %d times", strings.Count(string(data), "x"))
	}
	before := Fingerprint(env)
	if err := os.WriteFile(program, []byte("#!/bin/sh\nexit 1 # another one\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if Fingerprint(env) == before {
		t.Error("another criu goes unnoticed")
	}
	if err := h.Check(t.Context(), env); err == nil {
		t.Error("the answer is that of the earlier criu")
	}
}

// Exactly the files of the folder count that the processes have open.
func TestOpened(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "io")
	link := folder + "-link"
	if err := errors.Join(os.Mkdir(folder, 0o700), os.Symlink(folder, link)); err != nil {
		t.Fatal(err)
	}
	var want string
	for _, name := range []string{"stdout", "unused"} {
		path := filepath.Join(folder, name)
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		if name == "unused" {
			continue
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			t.Fatal(err)
		}
		want = regexp.QuoteMeta("file[") + "[0-9a-f]+:" + strconv.FormatUint(st.Ino, 16) + regexp.QuoteMeta("]")
	}
	for _, at := range []string{folder, link} {
		got, err := Opened([]int{os.Getpid(), 1 << 22}, at)
		name := slices.Collect(maps.Keys(got))
		if err != nil || len(got) != 1 || !regexp.MustCompile("^"+want+"$").MatchString(name[0]) || got[name[0]] != "stdout" {
			t.Errorf("below %s: %q %v, want one like %s", at, got, err, want)
		}
	}
	if got, err := Opened([]int{os.Getpid()}, t.TempDir()); err != nil || len(got) != 0 {
		t.Errorf("of another folder: %q %v", got, err)
	}
}

func TestWriteOptions(t *testing.T) {
	bundle := t.TempDir()
	if err := WriteOptions(bundle, "manage-cgroups=ignore", "external file[1:2]"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(bundle, OptionsFile))
	if err != nil || !strings.HasSuffix(string(got), "manage-cgroups=ignore\nexternal file[1:2]\n") {
		t.Errorf("%q %v", got, err)
	}
}

func TestFailure(t *testing.T) {
	log := filepath.Join(t.TempDir(), "dump.log")
	if got := Failure(log); got != "" {
		t.Errorf("without a log: %q", got)
	}
	text := "(00.1) fine\n(00.2) Error (criu/files-reg.c:1690): Can't lookup mount=663 for fd=5 path=/x\n(00.3) Error (criu/cr-dump.c:1): Dumping FAILED.\n(00.4) Error (a.c:1): third\n(00.5) Error (a.c:1): fourth\n"
	if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := Failure(log); got != "Can't lookup mount=663 for fd=5 path=/x; Dumping FAILED.; third" {
		t.Errorf("%q", got)
	}
}
