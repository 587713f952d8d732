package dirwatch

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAdd watches a folder, what is nearest above it, and what was made meanwhile.
func TestAdd(t *testing.T) {
	for _, tt := range []struct {
		name       string
		have       string // is there before
		appears    string // is made when a/b, or a, was found to be missing
		when, want string
	}{
		{"it is there", "a/b", "", "", "a/b"},
		{"a folder above it", "a", "", "", "a"},
		{"far above it", "", "", "", ""},
		{"it appears meanwhile", "a", "a/b", "a/b", "a/b"},
		{"it appears while the watch is above", "a", "a/b", "a", "a/b"},
		{"all of it appears", "", "a/b", "", "a/b"},
		{"a part of it appears", "", "a", "", "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			if err := os.MkdirAll(filepath.Join(root, tt.have), 0o700); err != nil {
				t.Fatal(err)
			}
			at, err := add(filepath.Join(root, "a/b"), func(dir string) error {
				_, err := os.Stat(dir)
				if tt.appears != "" && dir == filepath.Join(root, tt.when) {
					if err := os.MkdirAll(filepath.Join(root, tt.appears), 0o700); err != nil {
						t.Fatal(err)
					}
				}
				return err
			})
			if want := filepath.Join(root, tt.want); at != want || err != nil {
				t.Errorf("watches %s: %v; want %s", at, err, want)
			}
		})
	}
}

// TestKernel sees what the kernel tells, and its errors.
func TestKernel(t *testing.T) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	root := t.TempDir()
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{root, file, filepath.Join(file, "x"), root + "/no//"} {
		if at, err := Add(fd, path, unix.IN_CREATE); at != root || err != nil {
			t.Errorf("for %s it watches %s: %v", path, at, err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "no"), 0o700); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1024)
	if n, err := unix.Read(fd, buf); err != nil || !slices.Equal(buf[unix.SizeofInotifyEvent:][:2], []byte("no")) {
		t.Errorf("%q, %v", buf[:max(n, 0)], err)
	}
	if _, err := Add(-1, root, unix.IN_CREATE); !errors.Is(err, unix.EBADF) {
		t.Errorf("%v", err)
	}
}
