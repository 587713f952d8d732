package runtimetest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead.run/internal/pod"
)

// Handler is what the core needs of a runtime handler; the method comments are
// in internal/lifecycle.
type Handler interface {
	Info() pod.HandlerInfo
	Start(ctx context.Context, s pod.StartRequest) (pod.RunningProcess, error)
	Exec(ctx context.Context, e pod.ExecRequest) (pod.Exec, error)
	Kill(ctx context.Context, c *pod.Container, sig string, all bool) error
	Update(ctx context.Context, id string, b pod.Bundle) error
	Delete(ctx context.Context, id string) error
	Observe(ctx context.Context, id string, p *pod.RunningProcess) pod.Seen
}

// Subject is a handler on test.
type Subject struct {
	// StateDir is the handler's; bundles are containers/ID in it.
	StateDir string
	// Open makes a handler on StateDir, as a restarted daemon would.
	Open func(t *testing.T) Handler
	// Forget drops the exit of a container.
	Forget func(ctx context.Context, id string) error
	// Systemd says that systemd makes the cgroups.
	Systemd bool
	// Isolated says that containers are real: with namespaces and cgroups.
	Isolated bool
	// Tidy says that nothing in a container outlives its first process.
	Tidy bool
	// Split says that output and errors of an exec go separate ways, so that their
	// order is not kept.
	Split bool
}

// Run checks the contract.
func Run(t *testing.T, s Subject) {
	if info := s.Open(t).Info(); !info.Ready {
		t.Skipf("handler %s does not work on this host: %s", info.Name, info.Reason)
	}
	if _, err := os.Stat(busyboxPath); err != nil {
		t.Skip("busybox-static is not installed")
	}
	for _, c := range contract {
		t.Run(c.name, func(t *testing.T) {
			if c.isolated && !s.Isolated {
				t.Skip("needs namespaces and cgroups")
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			c.check(ctx, &scene{T: t, s: s, h: s.Open(t)})
		})
	}
	checkNothingLeft(t, s)
}

// rule is one clause of the contract.
type rule struct {
	name     string
	isolated bool
	check    func(ctx context.Context, s *scene)
}

var contract = []rule{
	{"exit code and output", false, exitCode},
	{"a signal ends it", false, signalEnds},
	{"a signal is caught", false, signalCaught},
	{"an unknown signal is refused", false, unknownSignal},
	{"killing what is gone is no error", false, killGone},
	{"start joins what runs", false, startJoins},
	{"start returns what has ended", false, startEnded},
	{"start without the program", false, missingProgram},
	{"start without the program in PATH", false, missingInPath},
	{"start fails cleanly", true, startFails},
	{"start with an unwritable log", false, unwritableLog},
	{"start in parallel", false, startParallel},
	{"start without the time for it", false, startInVain},
	{"stdin is empty", false, stdinEmpty},
	{"a terminal", true, terminal},
	{"exec", false, execRuns},
	{"exec as the container", true, execSame},
	{"exec on a terminal", true, execTerminal},
	{"exec without the program", false, execMissing},
	{"exec without a command", false, execEmpty},
	{"exec in what has ended", false, execEnded},
	{"exec is killed with its children", true, execKilled},
	{"exec closed while it runs", false, execClosed},
	{"update", true, updates},
	{"update of what is unknown", true, updateUnknown},
	{"kill everything in it", true, killAll},
	{"delete kills what is left", true, deleteKills},
	{"delete twice", false, deleteTwice},
	{"delete with a broken bundle", true, deleteBroken},
	{"delete what is unknown", false, deleteUnknown},
	{"observe by start time", false, observeStartTime},
	{"observe the unknown", false, observeUnknown},
	{"a new daemon goes on", false, reopened},
	{"recursive read-only mounts as promised", true, recursiveReadOnly},
	{"each container has its own seccomp filter", true, seccompFilters},
}

// checkNothingLeft looks for what containers leave on a host.
func checkNothingLeft(t *testing.T, s Subject) {
	t.Helper()
	for _, pattern := range []string{"runtimes/*/*", "containers/*/exec/*", "trials/*"} {
		left, err := filepath.Glob(filepath.Join(s.StateDir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		if len(left) > 0 {
			t.Errorf("left on disk: %v", left)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), " "+s.StateDir+"/containers/") {
		t.Errorf("mounts are left below %s", s.StateDir)
	}
}
