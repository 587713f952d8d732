package installer

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/cri"
	"fairlead.run/internal/installer/journal"
)

// An installer is killed anywhere in a change of two types, and the daemon does not
// start with what it has written. The next one brings the daemon back, with one
// restart, as it was before.
func TestKilledWithTwoTypesAndADaemonThatDoesNotStart(t *testing.T) {
	releases(t, func(t *testing.T, n *node) {
		before := n.tree("etc")
		first := bundle(t, "first", "1", "1")
		// In either order of their names: records are read by these.
		for _, fatal := range []string{"another", "second"} {
			third := bundle(t, "third", "1", "1")
			came := 0
			for _, place := range places() {
				n.install(first)
				shim := n.shim("first")
				n.fatal = fatal
				// One that has failed is not tried again at once.
				if n.killed(place, bundle(t, "first", "2", place), bundle(t, fatal, "1", place)) {
					came++
				}
				n.restart() // the node boots
				restarts := n.count()
				down := n.server == nil
				n.install(third)
				n.serves("runc", "foreign", "first", "third")
				if down && n.shim("first") != shim {
					t.Errorf("%s: first is served from %s, and was from %s", place, n.shim("first"), shim)
				}
				if took := n.count() - restarts; down && took != 2 {
					t.Errorf("%s: it took %d restarts to undo the change and to install another", place, took)
				}
				n.fatal = ""
				n.uninstall("third", "first", fatal)
				n.serves("runc", "foreign")
				n.same(before, "etc")
				n.bare()
				if t.Failed() {
					t.Fatalf("after a kill at %s", place)
				}
			}
			if came < 15 {
				t.Errorf("the change came to %d places only", came)
			}
		}
	})
}

// What does not start is of a turn that was cut off before, and of another type.
func TestUndoesATurnBeforeItsOwn(t *testing.T) {
	releases(t, func(t *testing.T, n *node) {
		before := n.tree("etc")
		if !n.killed("install.written", bundle(t, "bad", "1", "1")) {
			t.Fatal("nobody was killed")
		}
		n.fatal = "bad"
		i := n.installer()
		i.options.Wait = 1 // it stays down
		r := i.Install(t.Context(), sources([]string{bundle(t, "good", "1", "1")}))[0]
		if r.State == payload.Installed {
			t.Fatalf("%+v", r)
		}
		n.install(bundle(t, "good", "2", "2"))
		n.serves("runc", "foreign", "good")
		n.uninstall("good", "bad")
		n.same(before, "etc")
		n.bare()
	})
}

// A type that was cut off together with another fails after that one was finished
// alone: nothing of the other is taken back.
func TestUndoKeepsWhatOthersFinished(t *testing.T) {
	releases(t, func(t *testing.T, n *node) {
		a, b := bundle(t, "a", "1", "1"), bundle(t, "b", "1", "1")
		if !n.killed("install.restarting", a, b) {
			t.Fatal("nobody was killed")
		}
		n.install(b)
		i := n.installer()
		i.restarter = restarter(func(ctx context.Context) error {
			n.restart()
			return ctx.Err()
		})
		bad := bundle(t, "a", "2", "2")
		withCheck(t, bad)
		if r := i.Install(t.Context(), sources([]string{bad}))[0]; r.State != payload.RolledBack {
			t.Fatalf("%+v", r)
		}
		n.serves("runc", "foreign", "b")
		n.uninstall("b", "a")
		n.serves("runc", "foreign")
		n.bare()
	})
}

// withCheck adds a check that fails: its program is no program.
func withCheck(t *testing.T, dir string) {
	t.Helper()
	path := dir + "/" + payload.ManifestName
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(data), `"handlers"`, `"checks":[{"name":"runs","command":["shim"]}],"handlers"`, 1)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestCutOff(t *testing.T) {
	r := func(kind string, p journal.Phase, turn, place int) *journal.Record {
		return &journal.Record{Type: kind, Phase: p, Turn: turn, Place: place}
	}
	for name, c := range map[string]struct {
		all  []*journal.Record
		down bool
		want []string
	}{
		"nothing":                          {[]*journal.Record{r("a", journal.Done, 0, 0)}, true, nil},
		"up, cut off":                      {[]*journal.Record{r("a", journal.Restarting, 1, 0)}, false, nil},
		"down, cut off":                    {[]*journal.Record{r("a", journal.Restarting, 1, 0)}, true, []string{"a"}},
		"down, only staged":                {[]*journal.Record{r("a", journal.Staging, 1, 0)}, true, nil},
		"staged with one that has written": {[]*journal.Record{r("a", journal.Staging, 1, 1), r("b", journal.Writing, 1, 0)}, true, []string{"b", "a"}},
		"half marked":                      {[]*journal.Record{r("a", journal.Restarting, 2, 1), r("b", journal.RollingBack, 2, 0)}, false, []string{"b", "a"}},
		"of other turns":                   {[]*journal.Record{r("a", journal.RollingBack, 2, 0), r("b", journal.Restarting, 1, 0)}, false, []string{"a"}},
		"of two turns, down":               {[]*journal.Record{r("a", journal.Removing, 2, 0), r("b", journal.Restarting, 1, 0)}, true, []string{"b", "a"}},
		"one is committed":                 {[]*journal.Record{r("a", journal.Done, 0, 0), r("b", journal.Restarting, 1, 1)}, true, []string{"b"}},
		"deleting":                         {[]*journal.Record{r("a", journal.Deleting, 0, 0)}, true, nil},
		"of a journal without turns":       {[]*journal.Record{r("a", journal.Done, 0, 0), r("b", journal.RollingBack, 0, 0)}, false, []string{"b"}},
	} {
		var got []string
		for _, r := range cutOff(c.all, c.down) {
			got = append(got, r.Type)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// An installer that is told to end undoes its change, and that is no failure of the
// payload: the next one tries it at once.
func TestEndedIsNotFailed(t *testing.T) {
	for name, ended := range map[string]func(n *node, end context.CancelFunc) error{
		"while it restarts": func(n *node, end context.CancelFunc) error {
			end()
			n.restart()
			return context.Canceled
		},
		"while it waits": func(n *node, end context.CancelFunc) error {
			n.stop()
			time.AfterFunc(100*time.Millisecond, end)
			return nil
		},
		"by a program that was ended with it": func(n *node, end context.CancelFunc) error {
			end()
			n.restart()
			return errors.New("signal: killed")
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, 2)
			dir := bundle(t, "test", "1", "1")
			ctx, cancel := context.WithCancel(t.Context())
			i := n.installer()
			first := true
			i.restarter = restarter(func(context.Context) error {
				if first {
					first = false
					return ended(n, cancel)
				}
				n.restart()
				return nil
			})
			r := i.Install(ctx, sources([]string{dir}))[0]
			if r.State != payload.RolledBack || name == "while it waits" && !strings.Contains(r.Message, context.Canceled.Error()) {
				t.Fatalf("%+v", r)
			}
			n.serves("runc", "foreign")
			n.install(dir)
			n.serves("runc", "foreign", "test")
		})
	}
}

// An answer that comes when the time is up says only that: what was missing before is told.
func TestLastAnswerInTimeIsTold(t *testing.T) {
	n := newNode(t, 2)
	i := n.installer()
	i.options.Wait = 5 * time.Second
	missing, calls := errors.New("handler x is not served"), 0
	err := i.await(t.Context(), func(cri.Seen) error {
		if calls++; calls == 1 {
			return missing
		}
		time.Sleep(i.options.Wait)
		return context.DeadlineExceeded
	})
	if !errors.Is(err, missing) { // whether there was time for a second one or not
		t.Errorf("after %d answers: %v", calls, err)
	}
}

// A clock that was set back leaves times in the journal that are far away. Nobody waits for
// them.
func TestClockThatWasSetBack(t *testing.T) {
	n := newNode(t, 2)
	n.install(bundle(t, "good", "1", "1"))
	i := n.installer()
	i.options.Interval = 300 * time.Millisecond
	if err := i.journal.NoteRestart(time.Now().Add(24 * time.Hour)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	began := time.Now()
	if r := i.Install(ctx, sources([]string{bundle(t, "good", "2", "2")}))[0]; r.State != payload.Installed {
		t.Errorf("a restart in the future: %+v", r)
	}
	if took := time.Since(began); took < i.options.Interval {
		t.Errorf("it was restarted after %v", took)
	}

	bad := bundle(t, "bad", "1", "1")
	withCheck(t, bad)
	attempt := func() payload.InstallResult { return n.installer().Install(ctx, sources([]string{bad}))[0] }
	if r := attempt(); r.State != payload.RolledBack {
		t.Fatalf("%+v", r)
	}
	if r := attempt(); r.State != payload.Refused || !strings.Contains(r.Message, "the last 1 attempts failed") {
		t.Errorf("it is tried at once: %+v", r)
	}
	r, err := i.journal.Read("bad")
	if err != nil {
		t.Fatal(err)
	}
	r.Retry = r.Retry.Add(24 * time.Hour)
	if err := i.journal.Write(r); err != nil {
		t.Fatal(err)
	}
	if r := attempt(); r.State != payload.RolledBack {
		t.Errorf("an attempt in the future: %+v", r)
	}
	if r, err := i.journal.Read("bad"); err != nil || r.Failed != 2 || !heldOff(r) {
		t.Errorf("%+v %v", r, err)
	}
}
