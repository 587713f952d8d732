package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// fakeMonitor knows a list of processes and fails as it is told.
type fakeMonitor struct {
	mu        sync.Mutex
	processes []monitorv1.Process
	fail      error
	waits     []error // of the next calls of Wait
	starting  int     // that many calls of Find see the process being started
	lists     int     // calls of List
	unreaped  bool    // until Wait has been called, nothing can be forgotten
	forgotten []string
	events    [][]monitorv1.Exit // of each connection
	sealed    []bool             // of each start and exec
}

func (f *fakeMonitor) Start(_ context.Context, r monitorv1.StartRequest) (monitorv1.Started, error) {
	f.sealed = append(f.sealed, r.Sealed)
	return monitorv1.Started{}, f.fail
}

func (f *fakeMonitor) Exec(_ context.Context, r monitorv1.ExecRequest, _ [3]*os.File) (monitorv1.Started, *os.File, error) {
	f.sealed = append(f.sealed, r.Sealed)
	return monitorv1.Started{}, nil, f.fail
}

func (f *fakeMonitor) GiveUp(context.Context, string) error { return errdefs.ErrNotFound }

func (f *fakeMonitor) Wait(context.Context, string) (monitorv1.Exit, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unreaped = false
	if len(f.waits) > 0 {
		err := f.waits[0]
		f.waits = f.waits[1:]
		return monitorv1.Exit{Code: 1}, err
	}
	return monitorv1.Exit{Code: 1}, nil
}

func (f *fakeMonitor) List(context.Context) ([]monitorv1.Process, error) {
	f.lists++
	return f.processes, f.fail
}

func (f *fakeMonitor) Find(_ context.Context, id string) (monitorv1.Process, error) {
	if f.fail != nil {
		return monitorv1.Process{}, f.fail
	}
	for _, p := range f.processes {
		if p.ID != id {
			continue
		}
		if f.starting > 0 {
			f.starting--
			p.State, p.Started = monitorv1.Starting, monitorv1.Started{ID: id}
		}
		return p, nil
	}
	return monitorv1.Process{}, fmt.Errorf("find process %s: %w", id, errdefs.ErrNotFound)
}

func (f *fakeMonitor) Signal(context.Context, string, syscall.Signal, bool) error { return f.fail }

func (f *fakeMonitor) Forget(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unreaped {
		return errdefs.ErrPrecondition
	}
	f.forgotten = append(f.forgotten, id)
	return f.fail
}

func (f *fakeMonitor) Events(ctx context.Context, see func(monitorv1.Exit)) error {
	f.mu.Lock()
	if len(f.events) == 0 {
		f.mu.Unlock()
		<-ctx.Done()
		return ctx.Err()
	}
	exits := f.events[0]
	f.events = f.events[1:]
	f.mu.Unlock()
	for _, e := range exits {
		see(e)
	}
	return errdefs.ErrUnavailable
}

var quiet = slog.New(slog.DiscardHandler)

func TestExitsSurviveTheMonitorAndLeaveOutExecs(t *testing.T) {
	at := time.Now()
	own, foreign := newExecID(), "exec.ffffffff.0123456789abcdef"
	m := &fakeMonitor{events: [][]monitorv1.Exit{
		{{ID: "a", Kind: monitorv1.KindContainer, Code: 137, Signal: 9, FinishedAt: at, OOMKilled: true}, {ID: own, Kind: monitorv1.KindExec}},
		{{ID: "a", Kind: monitorv1.KindContainer, Code: 137, Signal: 9, FinishedAt: at, OOMKilled: true}, {ID: foreign, Kind: monitorv1.KindExec}, {ID: "b", Kind: monitorv1.KindContainer, Code: -1, Lost: true}},
	}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ids []string
	var exits []pod.Exit
	err := NewExits(m, quiet).Run(ctx, func(id string, e pod.Exit) {
		ids, exits = append(ids, id), append(exits, e)
		if id == "b" {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Run returned %v", err)
	}
	if !reflect.DeepEqual(ids, []string{"a", "a", "b"}) {
		t.Errorf("told of %v", ids)
	}
	if want := (pod.Exit{Code: 137, Signal: 9, FinishedAt: at, OOMKilled: true}); exits[0] != want {
		t.Errorf("got %+v, want %+v", exits[0], want)
	}
	if !exits[2].Lost {
		t.Errorf("got %+v", exits[2])
	}
	if !reflect.DeepEqual(m.forgotten, []string{foreign}) {
		t.Errorf("forgotten: %v", m.forgotten)
	}
}

func TestForgetTwice(t *testing.T) {
	if err := NewExits(&fakeMonitor{fail: errdefs.ErrNotFound}, quiet).Forget(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if err := NewExits(&fakeMonitor{fail: errdefs.ErrPrecondition}, quiet).Forget(t.Context(), "a"); err == nil {
		t.Error("forgetting a live process was no error")
	}
}

// A process that was killed has left its cgroup before the monitor reaps it.
func TestForgetWaitsForTheDeadToBeReaped(t *testing.T) {
	m := &fakeMonitor{unreaped: true}
	if err := NewExits(m, quiet).Forget(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if !reflect.DeepEqual(m.forgotten, []string{"a"}) {
		t.Errorf("forgotten: %v", m.forgotten)
	}
	gone := &fakeMonitor{unreaped: true, waits: []error{errdefs.ErrNotFound}}
	if err := NewExits(gone, quiet).Forget(t.Context(), "a"); err != nil {
		t.Errorf("forgotten by another in the meantime: %v", err)
	}
}

func TestWaitOutlastsTheMonitor(t *testing.T) {
	away := errdefs.ErrUnavailable
	if e, err := wait(t.Context(), &fakeMonitor{waits: []error{away, away}}, "x"); err != nil || e.Code != 1 {
		t.Errorf("got %+v, %v", e, err)
	}
	if _, err := wait(t.Context(), &fakeMonitor{waits: []error{errdefs.ErrNotFound}}, "x"); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if _, err := wait(t.Context(), &fakeMonitor{waits: []error{away, away, away, away, away, away}}, "x"); !errors.Is(err, away) {
		t.Errorf("got %v", err)
	}
}

// TestObserve holds the rule that a failed observation says nothing about life.
func TestObserve(t *testing.T) {
	gone := &pod.RunningProcess{PID: 1 << 22, StartTime: 7}
	exit := &monitorv1.Exit{Code: 3}
	tests := map[string]struct {
		monitor *fakeMonitor
		process *pod.RunningProcess
		want    string
	}{
		"ended, recorded":          {&fakeMonitor{processes: []monitorv1.Process{{Started: monitorv1.Started{ID: "x"}, State: monitorv1.Exited, Exit: exit}}}, gone, "code 3"},
		"ended, not recorded":      {&fakeMonitor{}, gone, "gone"},
		"ended, monitor away":      {&fakeMonitor{fail: errdefs.ErrUnavailable}, gone, "error"},
		"not recorded, lives":      {&fakeMonitor{processes: []monitorv1.Process{{Started: monitorv1.Started{ID: "x"}, State: monitorv1.Running}}}, nil, "alive"},
		"ended, output is copied":  {&fakeMonitor{processes: []monitorv1.Process{{Started: monitorv1.Started{ID: "x"}, State: monitorv1.Draining}}}, gone, "code 1"},
		"being started by then":    {&fakeMonitor{starting: 3, processes: []monitorv1.Process{{Started: monitorv1.Started{ID: "x", PID: 5}, State: monitorv1.Running}}}, nil, "alive"},
		"never heard of":           {&fakeMonitor{}, nil, "gone"},
		"start time was not known": {&fakeMonitor{processes: []monitorv1.Process{{Started: monitorv1.Started{ID: "x"}, State: monitorv1.Exited, Exit: exit}}}, &pod.RunningProcess{PID: os.Getpid()}, "code 3"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := &Handler{cfg: Config{StateDir: t.TempDir(), Monitor: test.monitor}}
			seen := h.Observe(t.Context(), "x", test.process)
			got := "gone"
			switch {
			case seen.Err != nil:
				got = "error"
			case seen.Alive:
				got = "alive"
			case seen.Exit != nil:
				got = map[int32]string{1: "code 1", 3: "code 3"}[seen.Exit.Code]
			}
			if got != test.want {
				t.Errorf("seen as %s (%+v), want %s", got, seen, test.want)
			}
			if seen.Alive && test.monitor.starting == 0 && seen.Process.PID != test.monitor.processes[0].PID {
				t.Errorf("it is process %+v", seen.Process)
			}
			// Hundreds of containers are observed at once after a restart: the whole
			// list for each would be work that grows with the square.
			if test.monitor.lists > 0 {
				t.Errorf("asked for the whole list %d times", test.monitor.lists)
			}
		})
	}
}

// fakeSession is a container with output of the test's and an input that is kept.
type fakeSession struct {
	mu     sync.Mutex
	input  strings.Builder
	closed bool
	over   chan struct{}
	err    error
	once   sync.Once
	out    *os.File
}

func (f *fakeSession) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.input.Write(p)
}

func (f *fakeSession) CloseStdin() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

func (f *fakeSession) Wait(context.Context) error { <-f.over; return f.err }

func (f *fakeSession) Close() error {
	f.once.Do(func() { close(f.over) })
	return f.out.Close()
}

func (f *fakeSession) ReopenLog(context.Context, string) error              { return nil }
func (f *fakeSession) Resize(context.Context, string, uint16, uint16) error { return nil }
func (f *fakeSession) Attach(context.Context, string, bool, bool, bool) (Session, io.Reader, io.Reader, error) {
	return f, f.out, nil, nil
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

func closes(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("the attachment does not end")
	}
}

func TestAttachment(t *testing.T) {
	out, container := pipe(t)
	client, stdout := pipe(t)
	s := &fakeSession{over: make(chan struct{}), out: out}
	a, err := NewStreams(s).Attach(t.Context(), "x", stdout, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Stdin().WriteString("in"); err != nil {
		t.Error(err)
	}
	a.Stdin().Close()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		input, closed := s.input.String(), s.closed
		s.mu.Unlock()
		if input == "in" && closed {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the container got %q, end %v", input, closed)
		}
	}
	if _, err := container.WriteString("out"); err != nil {
		t.Error(err)
	}
	container.Close()
	s.once.Do(func() { close(s.over) }) // the container ended
	closes(t, a.Done())
	stdout.Close()
	if text, _ := io.ReadAll(client); string(text) != "out" {
		t.Errorf("the client got %q", text)
	}
}

// TestAttachmentOfASlowClient fails if Close has to wait for a client that
// does not read.
func TestAttachmentOfASlowClient(t *testing.T) {
	for name, end := range map[string]func(*fakeSession, pod.Attachment){
		"closed": func(_ *fakeSession, a pod.Attachment) { _ = a.Close() },
		"thrown out": func(s *fakeSession, _ pod.Attachment) {
			s.err = errdefs.ErrExhausted
			s.once.Do(func() { close(s.over) })
		},
		"closed twice": func(_ *fakeSession, a pod.Attachment) { _ = a.Close(); _ = a.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			out, container := pipe(t)
			_, stdout := pipe(t)
			s := &fakeSession{over: make(chan struct{}), out: out}
			a, err := NewStreams(s).Attach(t.Context(), "x", stdout, nil, true)
			if err != nil {
				t.Fatal(err)
			}
			go func() { // more than both pipes hold
				block := make([]byte, 64<<10)
				for range 8 {
					if _, err := container.Write(block); err != nil {
						return
					}
				}
			}()
			time.Sleep(20 * time.Millisecond)
			end(s, a)
			closes(t, a.Done())
			a.Stdin().Close()
		})
	}
}
