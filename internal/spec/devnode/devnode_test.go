package devnode

import (
	"errors"
	"strings"
	"testing"

	"fairlead.run/internal/errdefs"
)

func TestFindAndAll(t *testing.T) {
	found, err := Find("/dev/null", "/dev/other")
	if err != nil || len(found) != 1 || found[0].Path != "/dev/other" || found[0].Type != "c" || found[0].Major != 1 || found[0].Minor != 3 {
		t.Errorf("%+v, %v", found, err)
	}
	for _, p := range []string{"/dev/no-such-device", "/etc/passwd", "/proc/self/task"} {
		if _, err := Find(p, "/dev/x"); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s: %v", p, err)
		}
	}
	all, err := All()
	if err != nil || len(all) == 0 {
		t.Fatalf("%v, %v", all, err)
	}
	for _, d := range all {
		if strings.HasPrefix(d.Path, "/dev/pts/") || strings.HasPrefix(d.Path, "/dev/shm/") || d.Path == "/dev/console" || d.Path == "/dev/ptmx" {
			t.Errorf("%s is a container's own", d.Path)
		}
	}
}
