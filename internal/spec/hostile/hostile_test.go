package hostile

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

func wantRefused(t *testing.T, what string, err error, words string) {
	t.Helper()
	if !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), words) {
		t.Errorf("%s: %v", what, err)
	}
}

// What is mounted over is a folder: a link there has led runtimes out of the
// container. User files are files, of a size that a runtime gets through.
func TestRootfs(t *testing.T) {
	folders := []string{"/proc", "/dev"}
	made := map[string]func(at string) error{
		"a link":   func(at string) error { return os.Symlink(t.TempDir(), at) },
		"a file":   func(at string) error { return os.WriteFile(at, nil, 0o644) },
		"a folder": func(at string) error { return os.Mkdir(at, 0o755) },
		"a pipe":   func(at string) error { return unix.Mkfifo(at, 0o644) },
		"large":    func(at string) error { return errors.Join(os.WriteFile(at, nil, 0o644), os.Truncate(at, maxUserFile)) },
		"huge":     func(at string) error { return errors.Join(os.WriteFile(at, nil, 0o644), os.Truncate(at, 4<<30)) },
		"lost":     func(at string) error { return os.Symlink("/../../nowhere", at) },
	}
	for _, tt := range []struct{ at, kind, words string }{
		{"proc", "a link", "no folder at /proc"},
		{"dev", "a link", "no folder at /dev"},
		{"dev", "a file", "no folder at /dev"},
		{"dev", "a folder", ""},
		{"other", "a link", ""},
		{"etc/passwd", "huge", "/etc/passwd in "},
		{"etc/group", "huge", "larger than 16777216 bytes"},
		{"etc/group", "large", ""},
		{"etc/passwd", "a pipe", "not a regular file"},
		{"etc/passwd", "a folder", ""},
		{"etc/passwd", "lost", ""},
		{"etc/passwd", "a file", ""},
	} {
		root := t.TempDir()
		at := filepath.Join(root, tt.at)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), made[tt.kind](at)); err != nil {
			t.Fatal(err)
		}
		err := Rootfs(root, folders)
		if tt.words != "" {
			wantRefused(t, tt.at+", "+tt.kind, err, tt.words)
		} else if err != nil {
			t.Errorf("%s, %s: %v", tt.at, tt.kind, err)
		}
	}
}

func TestArguments(t *testing.T) {
	long := strings.Repeat("x", 32*os.Getpagesize())
	for what, all := range map[string][]string{
		"one": {long}, "all together": slices.Repeat([]string{long[:1000]}, 7000), "very many": slices.Repeat([]string{"x"}, 700_000),
	} {
		wantRefused(t, what+", arguments", Arguments(all, nil), "too long")
		wantRefused(t, what+", variables", Arguments([]string{"x"}, all), "too long")
	}
	if err := Arguments([]string{long[1:]}, []string{long[1:]}); err != nil {
		t.Error(err)
	}
}

func TestVolumes(t *testing.T) {
	wantRefused(t, "volumes", Volumes(make([]string, maxVolumes+1)), "1001 volumes")
	if err := Volumes(make([]string, maxVolumes)); err != nil {
		t.Error(err)
	}
}
