package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestProfileChecksItsFlags(t *testing.T) {
	for _, tt := range []struct {
		args string
		want string
	}{
		{"-o x --seconds 0", "--seconds is 0; want 1 to 600"},
		{"-o x --seconds 601", "--seconds is 601; want 1 to 600"},
		{"", "say where to with -o FILE"},
		{"-o x y", `argument "y" is one too many: want fairlead debug profile -o FILE`},
	} {
		var out bytes.Buffer
		a := &app{out: &out, err: &out}
		args := append([]string{"debug", "profile"}, strings.Fields(tt.args)...)
		if code := a.run(t.Context(), args); code != exitUsage || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%q: code %d, %q", tt.args, code, out.String())
		}
	}
}

func TestFileIsWrittenWholeOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	a := &app{}
	broken := errors.New("broken")
	err := a.writeFile(file, func(w io.Writer) error {
		_, err := io.WriteString(w, "half")
		return errors.Join(err, broken)
	})
	if left, _ := os.ReadDir(dir); !errors.Is(err, broken) || len(left) > 0 {
		t.Errorf("%v; left behind: %v", err, left)
	}
	err = a.writeFile(file, func(w io.Writer) error {
		_, err := io.WriteString(w, "whole")
		return err
	})
	if text, _ := os.ReadFile(file); err != nil || string(text) != "whole" {
		t.Errorf("%v; %q", err, text)
	}
}
