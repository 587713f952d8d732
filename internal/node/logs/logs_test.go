package logs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/node/watchtest"
)

const stamp = "2026-01-02T03:04:05.000000006Z "

func write(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func readAll(t *testing.T, path string, o Options) []string {
	t.Helper()
	var got []string
	err := Read(t.Context(), path, o, func(l Line) error {
		text := l.Stream[3:4] + " " + string(l.Text)
		if l.Partial {
			text += "|"
		}
		got = append(got, text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestRead(t *testing.T) {
	full := func(text string) string { return stamp + "stdout F " + text + "\n" }
	tests := []struct {
		name, text string
		options    Options
		want       []string
	}{
		{"empty", "", Options{Tail: -1}, nil},
		{"lines", full("a") + full("") + full(" b "), Options{Tail: -1}, []string{"o a", "o ", "o  b "}},
		{"parts", stamp + "stdout P a\n" + stamp + "stderr P x\n" + stamp + "stdout P b\n" + stamp + "stderr F y\n" + full("c"), Options{Tail: -1}, []string{"e xy", "o abc"}},
		{"open part", stamp + "stdout P a\n", Options{Tail: -1}, []string{"o a|"}},
		{"no last break", strings.TrimSuffix(full("a"), "\n"), Options{Tail: -1}, []string{"o a"}},
		{"more tags", stamp + "stdout F:x=1 a\n", Options{Tail: -1}, []string{"o a"}},
		{"broken records are shown", "garbage\n\x00\x00\n" + full("a"), Options{Tail: -1}, []string{"e garbage", "o a"}},
		{"tail", full("a") + full("b") + full("c"), Options{Tail: 2}, []string{"o b", "o c"}},
		{"tail of parts", full("a") + stamp + "stdout P b\n" + stamp + "stdout F c\n", Options{Tail: 1}, []string{"o bc"}},
		{"tail of nothing", full("a"), Options{Tail: 0}, nil},
		{"tail of more", full("a"), Options{Tail: 9}, []string{"o a"}},
		{"one stream", full("a") + stamp + "stderr F x\n" + full("b"), Options{Tail: -1, Stream: "stderr"}, []string{"e x"}},
		{"broken records are of stderr", "garbage\n" + full("a"), Options{Tail: -1, Stream: "stdout"}, []string{"o a"}},
		{"tail of one stream", full("a") + full("b") + stamp + "stderr F x\n" + stamp + "stderr F y\n", Options{Tail: 1, Stream: "stdout"}, []string{"o b"}},
		{"tail with an open part", full("a") + full("b") + stamp + "stdout P c\n", Options{Tail: 2}, []string{"o b", "o c|"}},
		{"tail with no last break", full("a") + strings.TrimSuffix(full("b"), "\n"), Options{Tail: 1}, []string{"o b"}},
		{"since", full("old") + "2026-01-02T03:04:06Z stdout F new\n", Options{Tail: -1, Since: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC)}, []string{"o new"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "0.log")
			write(t, path, tt.text)
			if got := readAll(t, path, tt.options); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if got := readAll(t, "/nowhere/0.log", Options{Tail: -1}); got != nil {
		t.Errorf("a file that is not there: %q", got)
	}
}

// TestTailOfLongLog crosses the blocks that the tail is searched in.
func TestTailOfLongLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	var b strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&b, "%sstdout F line %d\n", stamp, i)
	}
	write(t, path, b.String())
	for _, n := range []int{1, 1000, 5000, 19_999, 20_000, 30_000} {
		got := readAll(t, path, Options{Tail: n})
		if want := min(n, 20_000); len(got) != want || got[0] != fmt.Sprintf("o line %d", 20_000-want) {
			t.Errorf("tail %d: %d lines from %q", n, len(got), got[0])
		}
	}
}

// Records of all lengths lie across the borders of blocks.
func TestTailFindsEveryLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	var b strings.Builder
	const lines = 400
	for i := range lines {
		fmt.Fprintf(&b, "%sstdout F %d %s\n", stamp, i, strings.Repeat("x", i*7%1500))
	}
	write(t, path, b.String())
	for n := 1; n <= lines; n++ {
		got := readAll(t, path, Options{Tail: n})
		if len(got) != n || !strings.HasPrefix(got[0], fmt.Sprintf("o %d ", lines-n)) {
			t.Fatalf("tail %d: %d lines from %.20q", n, len(got), got[0])
		}
	}
}

// What a container could put in the place of its log must not be read.
func TestOnlyRegularFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	write(t, secret, "secret\n")
	if err := os.Symlink(secret, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "fifo", "."} {
		err := Read(t.Context(), filepath.Join(dir, name), Options{Tail: -1}, func(l Line) error {
			t.Errorf("%s: read %q", name, l.Text)
			return nil
		})
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestHugeRecordIsSkipped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	write(t, path, stamp+"stdout F "+strings.Repeat("x", 3<<20)+"\n"+stamp+"stdout F after\n")
	if got := readAll(t, path, Options{Tail: -1}); !slices.Equal(got, []string{"o after"}) {
		t.Errorf("got %d lines", len(got))
	}
}

// TestFollow writes to a log while it is read: lines in pieces, a rotation as
// the kubelet does it, and the end.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	lines, ended, result := make(chan string, 100), make(chan struct{}), make(chan error, 1)
	go func() {
		result <- Read(context.Background(), path, Options{Tail: -1, Follow: true, Ended: ended}, func(l Line) error {
			lines <- string(l.Text)
			return nil
		})
	}()
	expect := func(want string) {
		t.Helper()
		select {
		case got := <-lines:
			if got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
		case <-time.After(4 * time.Second): // less than recheck: events must do it
			t.Fatalf("%q did not come", want)
		}
	}
	write(t, path, stamp+"stdout F one\n"+stamp+"std")
	expect("one")
	write(t, path, "out F two\n")
	expect("two")
	write(t, path, stamp+"stdout P thr")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write(t, path+".1", "e\n"+stamp+"stdout F last of old\n")
	write(t, path, stamp+"stdout F first of new\n")
	expect("threlast of old")
	expect("first of new")
	write(t, path, stamp+"stdout F four\n")
	close(ended)
	expect("four")
	if err := <-result; err != nil {
		t.Error(err)
	}
	if len(lines) != 0 {
		t.Errorf("a line too many: %q", <-lines)
	}
}

// TestFollowUnwatched follows a log where the user has no inotify instance left.
func TestFollowUnwatched(t *testing.T) {
	if watchtest.Unwatched(t) == nil {
		return
	}
	if _, err := unix.InotifyInit1(0); err == nil {
		t.Fatal("there are inotify instances left")
	}
	path := filepath.Join(t.TempDir(), "0.log")
	lines, ended := make(chan string), make(chan struct{})
	result := make(chan error, 1)
	go func() {
		result <- Read(t.Context(), path, Options{Tail: -1, Follow: true, Ended: ended}, func(l Line) error {
			lines <- string(l.Text)
			return nil
		})
	}()
	for _, text := range []string{"one", "two"} {
		write(t, path, stamp+"stdout F "+text+"\n")
		select {
		case got := <-lines:
			if got != text {
				t.Errorf("got %q, want %q", got, text)
			}
		case err := <-result:
			t.Fatalf("it has ended: %v", err)
		}
	}
	close(ended)
	if err := <-result; err != nil {
		t.Error(err)
	}
}

func TestFollowEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := Read(ctx, filepath.Join(t.TempDir(), "0.log"), Options{Follow: true}, func(Line) error { return nil })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestCallersErrorEndsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	write(t, path, stamp+"stdout F a\n"+stamp+"stdout F b\n")
	stop := errors.New("enough")
	if err := Read(t.Context(), path, Options{Tail: -1}, func(Line) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(stamp + "stdout F x")
	f.Add("")
	f.Add("a\n\n" + stamp + "stdout P x\nb")
	f.Fuzz(func(t *testing.T, s string) {
		if e, err := parse([]byte(s)); err == nil {
			(&joiner{}).add(e)
		}
		at, err := tailOffset(strings.NewReader(s), int64(len(s)), Options{Tail: 2})
		if err != nil || at < 0 || at > int64(len(s)) || at > 0 && s[at-1] != '\n' {
			t.Errorf("the last lines start at %d: %v", at, err)
		}
	})
}
