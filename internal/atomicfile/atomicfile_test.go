package atomicfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

func TestWrite(t *testing.T) {
	for name, write := range map[string]func(string, []byte, os.FileMode) error{"Write": Write, "WriteSync": WriteSync} {
		t.Run(name, func(t *testing.T) {
			old := syscall.Umask(0o077)
			defer syscall.Umask(old)
			path := filepath.Join(t.TempDir(), "file")
			for _, data := range []string{"first, longer", "second", ""} {
				if err := write(path, []byte(data), 0o644); err != nil {
					t.Fatal(err)
				}
				got, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if string(got) != data {
					t.Fatalf("read %q, want %q", got, data)
				}
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode() != 0o644 {
				t.Fatalf("mode %v, want 0644 whatever the umask", info.Mode())
			}
			onlyFile(t, path)
		})
	}
}

func TestRelativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := WriteSync("file", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	onlyFile(t, "file")
}

func TestFailureLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	// A directory in the way makes the last step fail, after the temporary
	// file was written.
	path := filepath.Join(dir, "taken")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("x"), 0o600); err == nil {
		t.Fatal("replaced a directory")
	}
	onlyFile(t, path)
}

func TestMissingDirectory(t *testing.T) {
	err := Write(filepath.Join(t.TempDir(), "no", "file"), nil, 0o600)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("err = %v, want not exist", err)
	}
}

func TestReadersSeeWholeFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	contents := [][]byte{bytes.Repeat([]byte("a"), 64<<10), bytes.Repeat([]byte("b"), 32<<10)}
	if err := Write(path, contents[0], 0o600); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, data := range contents {
		wg.Go(func() {
			for range 50 {
				if err := Write(path, data, 0o600); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 100 {
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, contents[0]) && !bytes.Equal(got, contents[1]) {
			t.Fatalf("read a mixture of %d bytes", len(got))
		}
	}
	wg.Wait()
	onlyFile(t, path)
}

func onlyFile(t *testing.T, path string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != filepath.Base(path) {
			t.Errorf("%s was left behind", e.Name())
		}
	}
}
