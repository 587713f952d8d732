package logs

import (
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func full(text string) string { return stamp + "stdout F " + text + "\n" }

func zip(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path + Compressed)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	if _, err := z.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func TestListRotated(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"0.log", "0.log.20260102-030405.gz", "0.log.20260102-030406", "0.log.20260102-030406.gz", "0.log.20260102-030407",
		"0.log.20260102-030407.tmp", "0.log.1", "1.log.20260102-030405", "0.log.20269902-030405",
	} {
		write(t, filepath.Join(dir, name), "")
	}
	list, err := ListRotated(filepath.Join(dir, "0.log"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range list {
		got = append(got, fmt.Sprint(filepath.Base(f.Path), f.Compressed))
	}
	if want := []string{"0.log.20260102-030405.gztrue", "0.log.20260102-030406false", "0.log.20260102-030407false"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if list, err := ListRotated("/nowhere/0.log"); err != nil || list != nil {
		t.Errorf("%v, %v", list, err)
	}
}

// What was rotated away is read with the rest if it is asked for, and the last
// lines reach back into it.
func TestReadRotated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	write(t, path+".20260102-030405", full("a")+full("b"))
	zip(t, path+".20260102-030405")
	write(t, path+".20260102-030406", full("c")+stamp+"stdout P d")
	write(t, path, full("e")+full("f"))
	for tail, want := range map[int]string{
		-1: "o a,o b,o c,o de,o f", 0: "", 1: "o f", 2: "o de,o f", 3: "o c,o de,o f", 4: "o b,o c,o de,o f", 5: "o a,o b,o c,o de,o f", 9: "o a,o b,o c,o de,o f",
	} {
		// A line whose first part was rotated away is whole where that is read, too.
		if tail == 2 {
			want = "o e,o f"
		}
		if got := strings.Join(readAll(t, path, Options{Tail: tail, Rotated: true}), ","); got != want {
			t.Errorf("the last %d: %q, want %q", tail, got, want)
		}
	}
	if got := strings.Join(readAll(t, path, Options{Tail: -1}), ","); got != "o e,o f" {
		t.Errorf("without: %q", got)
	}
	if got := readAll(t, filepath.Join(t.TempDir(), "0.log"), Options{Tail: 3, Rotated: true}); got != nil {
		t.Errorf("of nothing: %q", got)
	}
}

// A reader that is held up while a log is rotated several times, and what was
// rotated is compressed, misses no line and reads none twice.
func TestFollowManyRotations(t *testing.T) {
	for name, rotate := range map[string]func(t *testing.T, path string){
		"once": func(t *testing.T, path string) {
			rename(t, path, path+".20260102-030406")
			write(t, path+".20260102-030406", full("1 late")) // a runtime that has not opened the new one
			write(t, path, full("2"))
		},
		"twice": func(t *testing.T, path string) {
			rename(t, path, path+".20260102-030406")
			write(t, path, full("2"))
			rename(t, path, path+".20260102-030407")
			write(t, path, full("3"))
		},
		"thrice, compressed": func(t *testing.T, path string) {
			for i := 6; i < 9; i++ {
				rename(t, path, fmt.Sprintf("%s.20260102-03040%d", path, i))
				write(t, path, full(fmt.Sprint(i-4)))
				if i > 6 {
					zip(t, fmt.Sprintf("%s.20260102-03040%d", path, i-1))
				}
			}
		},
		"and its own was removed": func(t *testing.T, path string) {
			rename(t, path, path+".20260102-030406")
			write(t, path, full("2"))
			rename(t, path, path+".20260102-030407")
			write(t, path, full("3"))
			if err := os.Remove(path + ".20260102-030406"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "0.log")
			write(t, path+".20260102-030405", full("from before"))
			write(t, path, full("0"))
			lines, began, held, ended, result := make(chan string), make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan error, 1)
			go func() {
				result <- Read(context.Background(), path, Options{Tail: -1, Follow: true, Ended: ended}, func(l Line) error {
					if string(l.Text) == "0" {
						close(began)
						<-held
					}
					lines <- string(l.Text)
					return nil
				})
				close(lines)
			}()
			<-began
			write(t, path, full("1"))
			rotate(t, path)
			close(held)
			want := []string{"0", "1"}
			switch name {
			case "once":
				want = append(want, "1 late", "2")
			case "thrice, compressed":
				want = append(want, "2", "3", "4")
			default:
				want = append(want, "2", "3")
			}
			var got []string
			for line := range lines {
				if got = append(got, line); len(got) == len(want) {
					close(ended)
				}
			}
			if err := <-result; err != nil || !slices.Equal(got, want) {
				t.Errorf("got %q, want %q, %v", got, want, err)
			}
		})
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// The last lines of one stream may lie further back than those of both.
func TestTailOfOneStreamAcrossRotations(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	err := func(text string) string { return stamp + "stderr F " + text + "\n" }
	write(t, path+".20260102-030405", full("a")+err("x")+full("b"))
	write(t, path+".20260102-030406", err("y")+full("c"))
	write(t, path, full("d")+full("e"))
	for tail, want := range map[int]string{1: "e y", 2: "e x,e y", 9: "e x,e y"} {
		if got := strings.Join(readAll(t, path, Options{Tail: tail, Stream: "stderr", Rotated: true}), ","); got != want {
			t.Errorf("%d: got %q, want %q", tail, got, want)
		}
	}
	if got := strings.Join(readAll(t, path, Options{Tail: 4, Stream: "stdout", Rotated: true}), ","); got != "o b,o c,o d,o e" {
		t.Errorf("got %q", got)
	}
}

// A link in the place of a file that was rotated away is not read.
func TestOnlyRegularRotatedFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	write(t, filepath.Join(dir, "secret"), "secret\n")
	write(t, path, full("a"))
	if err := os.Symlink("secret", path+".20260102-030405"); err != nil {
		t.Fatal(err)
	}
	err := Read(t.Context(), path, Options{Tail: -1, Rotated: true}, func(l Line) error {
		t.Errorf("read %q", l.Text)
		return nil
	})
	if err == nil {
		t.Error("no error")
	}
}
