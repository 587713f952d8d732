package failpoint

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	one = Register("test.one")
	two = Register("test.two")
)

// childSpec makes the test binary run as the victim of a kill.
const childSpec = "FAILPOINT_TEST_CHILD"

func TestMain(m *testing.M) {
	if spec, ok := os.LookupEnv(childSpec); ok {
		if err := Enable(spec); err != nil {
			os.Exit(2)
		}
		_ = Hit(one)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func enable(t *testing.T, spec string) {
	t.Helper()
	if err := Enable(spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Enable("") })
}

// A spec that reaches several processes acts in one of them.
func TestOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "once")
	spec := "test.one=error@2!" + file
	enable(t, spec)
	if err := Hit(one); err != nil {
		t.Fatalf("first hit: %v", err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Fatal("the file is there before the action")
	}
	if Hit(one) == nil {
		t.Fatal("second hit: nothing happened")
	}
	if _, err := os.Stat(file); err != nil {
		t.Fatal(err)
	}
	enable(t, spec) // as in the next process
	for range 3 {
		if err := Hit(one); err != nil {
			t.Fatalf("in another process: %v", err)
		}
	}
}

func TestOffByDefault(t *testing.T) {
	if err := Hit(one); err != nil || on.Load() {
		t.Fatalf("on = %t, err = %v", on.Load(), err)
	}
}

// What is off allocates nothing, and looks for no name.
func TestOffCostsNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { _ = Hit("no such place") }); n != 0 || on.Load() {
		t.Errorf("a place that is off allocates %g times", n)
	}
}

func TestError(t *testing.T) {
	enable(t, "test.one=error")
	if err := Hit(one); !errors.Is(err, ErrInjected) || !strings.Contains(err.Error(), one) {
		t.Fatalf("err = %v, want one that is injected and names the place", err)
	}
	if err := Hit(two); err != nil {
		t.Fatalf("a place that was not named failed: %v", err)
	}
	enable(t, "")
	if err := Hit(one); err != nil {
		t.Fatalf("still on: %v", err)
	}
}

func TestNthHit(t *testing.T) {
	enable(t, "test.one=error@3")
	var got []bool
	for range 5 {
		got = append(got, Hit(one) != nil)
	}
	if want := []bool{false, false, true, false, false}; !slices.Equal(got, want) {
		t.Fatalf("failed = %v, want %v", got, want)
	}
}

func TestSleep(t *testing.T) {
	enable(t, "test.two=sleep:30ms")
	start := time.Now()
	if err := Hit(two); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 30*time.Millisecond {
		t.Fatalf("slept %v", took)
	}
}

func TestWait(t *testing.T) {
	file := t.TempDir() + "/go"
	enable(t, "test.two=wait:"+file)
	over := make(chan error)
	go func() { over <- Hit(two) }()
	select {
	case err := <-over:
		t.Fatalf("did not wait, and returned %v", err)
	case <-time.After(30 * time.Millisecond):
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-over; err != nil {
		t.Fatal(err)
	}
}

func TestKill(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), childSpec+"=test.one=kill")
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) {
		t.Fatalf("err = %v, want a killed process", err)
	}
	if ws := exit.Sys().(syscall.WaitStatus); ws.Signal() != syscall.SIGKILL {
		t.Fatalf("ended with %v, want SIGKILL", exit)
	}
}

func TestParse(t *testing.T) {
	known := []string{"a", "b"}
	for _, tt := range []struct {
		spec string
		want map[string]action
		err  string
	}{
		{spec: "", want: map[string]action{}},
		{spec: " ", want: map[string]action{}},
		{spec: "a=kill", want: map[string]action{"a": {kind: kill}}},
		{spec: "a=error, b=sleep:2m@7", want: map[string]action{"a": {kind: fail}, "b": {kind: sleep, sleep: 2 * time.Minute, nth: 7}}},
		{spec: "a", err: "want name=action"},
		{spec: "a=kill,", err: "want name=action"},
		{spec: "c=kill", err: `"c" does not exist in this program; there are: a, b`},
		{spec: "a=kill,a=error", err: "named twice"},
		{spec: "a=", err: "not an action"},
		{spec: "a=explode", err: "not an action"},
		{spec: "a=kill:now", err: "takes no argument"},
		{spec: "a=sleep", err: "needs a duration"},
		{spec: "a=sleep:-1s", err: "needs a duration"},
		{spec: "a=wait:/go@2!/once", want: map[string]action{"a": {kind: wait, file: "/go", nth: 2, once: "/once"}}},
		{spec: "a=wait", err: "absolute path"},
		{spec: "a=wait:here", err: "absolute path"},
		{spec: "a=kill@0", err: "number of a hit"},
		{spec: "a=kill@x", err: "number of a hit"},
		{spec: "a=error!/once", want: map[string]action{"a": {kind: fail, once: "/once"}}},
		{spec: "a=error@2!/once", want: map[string]action{"a": {kind: fail, nth: 2, once: "/once"}}},
		{spec: "a=kill!", err: "absolute path"},
		{spec: "a=kill!here", err: "absolute path"},
	} {
		got, err := parse(tt.spec, known)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%q: err = %v, want %q in it", tt.spec, err, tt.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", tt.spec, err)
		}
		if len(got) != len(tt.want) {
			t.Errorf("%q: %d places, want %d", tt.spec, len(got), len(tt.want))
		}
		for name, want := range tt.want {
			if got[name] == nil || got[name].action != want {
				t.Errorf("%q: %s = %v, want %v", tt.spec, name, got[name], want)
			}
		}
	}
}

func TestWrongSpecChangesNothing(t *testing.T) {
	enable(t, "test.one=error")
	if err := Enable("test.two=error,nonsense=kill"); err == nil {
		t.Fatal("an unknown name was accepted")
	}
	if Hit(one) == nil || Hit(two) != nil {
		t.Fatal("a wrong spec was applied in part")
	}
}

func TestRegisterRefuses(t *testing.T) {
	for _, name := range []string{"", "a=b", "a b", "a,b", "a@b", one} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Register(%q) did not panic", name)
				}
			}()
			Register(name)
		}()
	}
}

func BenchmarkHitOff(b *testing.B) {
	for b.Loop() {
		if err := Hit(one); err != nil {
			b.Fatal(err)
		}
	}
}
