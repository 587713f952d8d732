package hostpath

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAdvice says what to do about what is full, and nothing where waiting helps.
func TestAdvice(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string // "" is none
	}{
		{fmt.Errorf("write /a: %w", unix.ENOSPC), "df -i"},
		{errors.New("rpc error: mkdir /a: no space left on device"), "df -i"},
		{unix.EDQUOT, "quota"},
		{unix.EROFS, "dmesg"},
		{&exec.Error{Name: "fork/exec /usr/bin/runc", Err: unix.EAGAIN}, "kernel.pid_max"},
		{errors.New("runc create failed: unable to start init: clone: resource temporarily unavailable"), "kernel.pid_max"},
		{fmt.Errorf("read unix @: %w", unix.EAGAIN), ""},
		{unix.EIO, ""},
	} {
		if got := Advice(tt.err); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) || got != "" && !strings.HasPrefix(got, "; ") {
			t.Errorf("%v: %q, want %q", tt.err, got, tt.want)
		}
	}
}
