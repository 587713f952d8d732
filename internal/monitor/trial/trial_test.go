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
