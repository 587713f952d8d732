package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
)

// fakeExecs are processes of which each refuses a number of signals before it
// can be killed.
type fakeExecs struct {
	list []monitorv1.Process

	mu      sync.Mutex
	refuses map[string]int
	why     map[string]error
	killed  []string
}

func (f *fakeExecs) List(context.Context) ([]monitorv1.Process, error) { return f.list, nil }

func (f *fakeExecs) Signal(_ context.Context, id string, sig syscall.Signal, all bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if sig != syscall.SIGKILL || !all {
		return fmt.Errorf("signal %s, all %v", sig, all)
	}
	if f.refuses[id] > 0 {
		f.refuses[id]--
		return errdefs.ErrPrecondition
	}
	if err := f.why[id]; err != nil {
		return err
	}
	f.killed = append(f.killed, id)
	return nil
}

// TestEndExecs wants commands of an earlier daemon ended, and nothing else.
func TestEndExecs(t *testing.T) {
	process := func(id string, kind monitorv1.ProcessKind, state monitorv1.State) monitorv1.Process {
		return monitorv1.Process{Started: monitorv1.Started{ID: id}, Kind: kind, State: state}
	}
	f := &fakeExecs{
		list: []monitorv1.Process{
			process("container", monitorv1.KindContainer, monitorv1.Running),
			process("exec.old.1", monitorv1.KindExec, monitorv1.Running),
			process("exec.old.2", monitorv1.KindExec, monitorv1.Exited),
			process("exec.old.3", monitorv1.KindExec, monitorv1.Starting),
			process("exec.old.4", monitorv1.KindExec, monitorv1.Running),
			process("exec.old.5", monitorv1.KindExec, monitorv1.Running),
		},
		refuses: map[string]int{"exec.old.3": 3},
		why:     map[string]error{"exec.old.4": errdefs.ErrNotFound, "exec.old.5": errors.New("no way")},
	}
	err := endExecs(t.Context(), f)
	if err == nil || err.Error() != "kill exec exec.old.5: no way" {
		t.Errorf("said %v", err)
	}
	slices.Sort(f.killed)
	if want := []string{"exec.old.1", "exec.old.3"}; !slices.Equal(f.killed, want) {
		t.Errorf("killed %v, want %v", f.killed, want)
	}
}
