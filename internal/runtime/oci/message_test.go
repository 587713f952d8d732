package oci

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.run/internal/errdefs"
)

func TestLastError(t *testing.T) {
	tests := map[string]struct{ log, want string }{
		"empty":            {"", ""},
		"runc":             {`{"level":"error","msg":"runc run failed: unable to start container process: exec: \"x\": no"}` + "\n", `exec: "x": no`},
		"the last one":     {`{"level":"error","msg":"first"}` + "\n" + `{"level":"error","msg":"second"}` + "\n" + `{"level":"info","msg":"third"}`, "second"},
		"warnings are not": {`{"level":"warning","msg":"a warning"}` + "\n", ""},
		"plain text":       {"some text\nlast line\n", "last line"},
		"JSON before text": {`{"level":"error","msg":"this"}` + "\nplain\n", "this"},
		"cut off":          {`{"level":"error","msg":"this"}` + "\n" + `{"level":"error","ms`, "this"},
		"escapes":          {"a\x1b[31mb\x00c", "a [31mb c"},
		"not UTF-8":        {"bad \xff byte", "bad ? byte"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := lastError([]byte(test.log)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	if got := lastError([]byte(strings.Repeat("x", 1<<20))); len(got) > 4<<10 {
		t.Errorf("a message of %d bytes", len(got))
	}
}

func TestReadLogReadsTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	noise := strings.Repeat(`{"level":"debug","msg":"noise"}`+"\n", 1<<14)
	if err := os.WriteFile(path, []byte(noise+`{"level":"error","msg":"the point"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := readLog(path); got != "the point" {
		t.Errorf("got %q", got)
	}
	if got := readLog(path + "-absent"); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestKindOf(t *testing.T) {
	tests := map[string]error{
		`exec: "/x": stat /x: no such file or directory`:                         errdefs.ErrInvalidArgument,
		`exec: "x": executable file not found in $PATH`:                          errdefs.ErrInvalidArgument,
		"executable file `x` not found in $PATH: No such file or directory":      errdefs.ErrInvalidArgument,
		`exec /x: no such file or directory`:                                     errdefs.ErrInvalidArgument,
		`exec: "/x": permission denied`:                                          errdefs.ErrInvalidArgument,
		"open executable: Permission denied":                                     errdefs.ErrInvalidArgument,
		"container does not exist":                                               errdefs.ErrNotFound,
		"container \"x\" does not exist":                                         errdefs.ErrNotFound,
		"error opening file `/run/x/status`: No such file or directory":          errdefs.ErrNotFound,
		"cannot open directory '/run/crun/nope': No such file or directory":      errdefs.ErrNotFound,
		"container with id exists: x":                                            errdefs.ErrAlreadyExists,
		"container with given ID already exists":                                 errdefs.ErrAlreadyExists,
		"container `x` already exists":                                           errdefs.ErrAlreadyExists,
		"cannot exec a container that has stopped":                               errdefs.ErrPrecondition,
		"cannot exec in a stopped container":                                     errdefs.ErrPrecondition,
		"the container `x` is not running":                                       errdefs.ErrPrecondition,
		"mkdir /x: no space left on device":                                      errdefs.ErrExhausted,
		"cannot rm state directory `/x`: Read-only file system":                  errdefs.ErrPrecondition,
		"fork: Cannot allocate memory":                                           errdefs.ErrExhausted,
		"cgroups in hybrid mode not supported, drop all controllers from cgroup": errdefs.ErrUnavailable,
		"something new": errdefs.ErrInternal,
	}
	for msg, want := range tests {
		if err := error(&toolError{msg}); !errors.Is(err, want) {
			t.Errorf("%q is of the kind %q", msg, errors.Unwrap(err))
		}
	}
}

func TestExplain(t *testing.T) {
	env := []string{"A=b", "PATH=/opt/bin:/bin"}
	tests := map[string]struct {
		msg  string
		argv []string
		want string
	}{
		"by path":    {`exec: "/x": stat /x: no such file or directory`, []string{"/x"}, `no program "/x"`},
		"in PATH":    {`exec: "x": executable file not found in $PATH`, []string{"x"}, `no program "x" in its PATH (/opt/bin:/bin)`},
		"access":     {`exec: "/x": permission denied`, []string{"/x"}, `"/x" is not executable`},
		"no command": {`something`, nil, "something"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := explain(test.msg, test.argv, env).Error()
			if !strings.Contains(got, test.want) || !strings.Contains(got, test.msg) {
				t.Errorf("got %q, want %q and the runtime's own words", got, test.want)
			}
		})
	}
}
