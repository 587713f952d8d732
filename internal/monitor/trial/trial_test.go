package trial

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/iotest"
)

func TestRun(t *testing.T) {
	var out bytes.Buffer
	if code := run([]string{"word"}, strings.NewReader("ignored"), &out); code != 0 || out.String() != "word\n" {
		t.Errorf("code %d, output %q", code, out.String())
	}
	if code := run(nil, strings.NewReader(""), &out); code != 2 {
		t.Errorf("without a word: code %d", code)
	}
	if code := run([]string{"word"}, iotest.ErrReader(errors.New("broken")), &out); code != 1 {
		t.Errorf("with a broken input: code %d", code)
	}
}

// Without a filter, a read-only mount or a device, it says so.
func TestLook(t *testing.T) {
	var out bytes.Buffer
	if code := run([]string{"word", "seccomp", "recursive-read-only-mounts:shm", "devices", "moon"}, strings.NewReader(""), &out); code != 0 {
		t.Errorf("code %d", code)
	}
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{"seccomp no: the filter lets", "recursive-read-only-mounts no: statfs /fairlead-read-only/shm: ", "devices no: open /dev/fairlead-trial: ", "moon no: nobody knows", "word"} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d of %q is not %s", i, lines, want)
		}
	}
	if err := readOnly(t.TempDir()); err == nil {
		t.Error("a folder that can be written is told to be read-only")
	}
	if err := zeros("/dev/zero"); err != nil {
		t.Error(err)
	}
	if err := zeros("/proc/self/cmdline"); err == nil {
		t.Error("any file is told to be a device of zeros")
	}
}
