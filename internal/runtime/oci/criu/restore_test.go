package criu

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead.run/internal/errdefs"
)

// What the container had open as its output is given to criu by the descriptors
// that the runtime has.
func TestPrepareRestore(t *testing.T) {
	bundle, from := t.TempDir(), t.TempDir()
	opened := map[string]string{"file[1:2]": "stdout", "file[1:3]": "stderr", "file[1:4]": "stdin"}
	if err := WriteOutputs(from, opened); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a start that failed comes again
		work, err := PrepareRestore(bundle, from, true)
		if err != nil || work != filepath.Join(bundle, "criu") {
			t.Fatalf("%q %v", work, err)
		}
	}
	file, ok := strings.CutPrefix(RestoreEnv(bundle), "CRIU_CONFIG_FILE=")
	text, err := os.ReadFile(file)
	got := slices.Sorted(strings.Lines(string(text)))
	if want := []string{"inherit-fd fd[0]:file[1:4]\n", "inherit-fd fd[1]:file[1:2]\n", "inherit-fd fd[2]:file[1:3]\n"}; !ok || err != nil || !slices.Equal(got, want) {
		t.Errorf("%q %v", got, err)
	}
	if text, err := os.ReadFile(filepath.Join(bundle, OptionsFile)); err != nil || strings.Contains(string(text), "inherit-fd") || !strings.Contains(string(text), "tcp-close\n") {
		t.Errorf("%q %v", text, err)
	}
	if _, err := PrepareRestore(bundle, from, false); !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), "stdin") {
		t.Errorf("a container without the input that it had: %v", err)
	}
	if err := WriteOutputs(from, map[string]string{"file[1:2]": "else"}); err != nil {
		t.Fatal(err)
	}
	if _, err := PrepareRestore(bundle, from, true); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("a file that nobody has: %v", err)
	}
	if _, err := PrepareRestore(bundle, t.TempDir(), true); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("from nothing: %v", err)
	}
}
