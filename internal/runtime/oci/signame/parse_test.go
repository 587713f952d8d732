package signame

import (
	"errors"
	"testing"

	"fairlead.run/internal/errdefs"
)

func TestParse(t *testing.T) {
	for name, want := range map[string]int{
		"SIGTERM": 15, "sigterm": 15, "TERM": 15, "15": 15, " SIGKILL ": 9, "SIGRTMIN": 34, "RTMIN+3": 37,
		"SIGRTMAX": 64, "SIGRTMAX-1": 63, "64": 64, "SIGPWR": 30,
	} {
		if got, err := Parse(name); err != nil || int(got) != want {
			t.Errorf("%q is %d (%v), want %d", name, got, err, want)
		}
	}
	for _, name := range []string{"", "SIG", "0", "-1", "65", "SIGNOPE", "RTMIN3", "RTMIN+31", "RTMIN-1", "RTMAX+1", "RTMIN+x", "1.5"} {
		if got, err := Parse(name); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%q is %d (%v)", name, got, err)
		}
	}
}
