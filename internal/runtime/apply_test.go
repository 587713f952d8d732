package runtime

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// farm is a registry with a shelf, and programs for its handlers.
type farm struct {
	*lab
	t       *testing.T
	dir     string
	wanted  Wanted
	uses    map[pod.HandlerUse]int
	r       *Registry[driver]
	program string
}

func newFarm(t *testing.T, names ...string) *farm {
	t.Helper()
	f := &farm{lab: newLab(), t: t, dir: t.TempDir(), uses: map[pod.HandlerUse]int{}}
	f.program = filepath.Join(f.dir, "program")
	f.install("one")
	f.wanted = f.want(names...)
	f.restart()
	return f
}

// install puts another program in the place of all.
func (f *farm) install(text string) {
	f.t.Helper()
	if err := os.WriteFile(f.program+".new", []byte("\x7fELF "+text), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(f.program+".new", f.program); err != nil {
		f.t.Fatal(err)
	}
}

func (f *farm) want(names ...string) Wanted {
	w := Wanted{Handlers: map[string]v1alpha1.Handler{}}
	for _, n := range names {
		w.Handlers[n] = v1alpha1.Handler{Path: f.program}
	}
	return w
}

// restart makes the registry anew, as the next daemon does.
func (f *farm) restart() {
	f.t.Helper()
	f.r = f.registry(f.t, Config{Wanted: f.wanted, Shelf: filepath.Join(f.dir, "shelf"), Uses: func() map[pod.HandlerUse]int { return f.uses }})
}

func (f *farm) apply(w Wanted) (Change, error) {
	c, err := f.r.Apply(f.t.Context(), w, nil, nil)
	if err == nil {
		f.wanted = w
	}
	return c, err
}

// run is a new pod.
func (f *farm) run(name string) pod.HandlerUse {
	f.t.Helper()
	d, err := f.r.Get(name)
	if err != nil {
		f.t.Fatal(err)
	}
	use := pod.HandlerUse{Handler: name, Revision: d.info().Revision}
	if use.Revision == "" {
		f.t.Fatalf("no revision of %s was kept", name)
	}
	f.uses[use]++
	return use
}

// serves says which program a pod has.
func (f *farm) serves(u pod.HandlerUse) string {
	f.t.Helper()
	d, err := f.r.Serving(u.Handler, u.Revision)
	if err != nil {
		f.t.Fatal(err)
	}
	text, err := os.ReadFile(d.def.Pinned)
	if err != nil {
		f.t.Fatal(err)
	}
	return strings.TrimPrefix(string(text), "\x7fELF ")
}

func (f *farm) prune() error {
	f.t.Helper()
	waits, err := f.r.Prune(func() bool { return false })
	if waits {
		f.t.Error("it waits for a pod, and none is being started")
	}
	return err
}

func (f *farm) folders() int {
	all, _ := filepath.Glob(filepath.Join(f.dir, "shelf", "*", "*"))
	return len(all)
}

func (f *farm) state(name string) pod.HandlerState {
	for _, i := range f.r.List() {
		if i.Name == name {
			return i.State()
		}
	}
	return ""
}

func TestApply(t *testing.T) {
	f := newFarm(t, "a", "b")
	f.r.List()
	w := f.want("a", "c")
	w.Handlers["a"] = v1alpha1.Handler{Path: f.program, Args: []string{"--debug"}}
	change, err := f.apply(w)
	if err != nil || !slices.Equal(change.Added, []string{"c"}) || !slices.Equal(change.Changed, []string{"a"}) || !slices.Equal(change.Removed, []string{"b"}) {
		t.Fatalf("%+v %v", change, err)
	}
	if f.state("a") != pod.HandlerReady || f.state("b") != "" || f.state("c") != pod.HandlerReady {
		t.Errorf("%+v", f.r.List())
	}
	before := f.trials.Load()
	if change, err := f.apply(w); err != nil || len(change.Added)+len(change.Changed)+len(change.Removed) > 0 || f.trials.Load() != before {
		t.Errorf("the same again: %+v %v, %d trials more", change, err, f.trials.Load()-before)
	}
}

// What does not work changes nothing, not even what would have.
func TestApplyIsTakenBack(t *testing.T) {
	f := newFarm(t, "a")
	f.r.List()
	f.change("bad", "it is broken", "")
	for name, w := range map[string]Wanted{
		"it is broken":         f.want("bad", "good"),
		`no kind "vm"`:         {Handlers: map[string]v1alpha1.Handler{"good": {Type: "vm"}}},
		"there is no \"none\"": {Handlers: f.want("good").Handlers, Default: "none"},
	} {
		if _, err := f.apply(w); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("want %q: %v", name, err)
		}
	}
	failed := errors.New("the disk is full")
	if _, err := f.r.Apply(t.Context(), f.want("good"), nil, func() error { return failed }); !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
	if list := f.r.List(); len(list) != 1 || list[0].Name != "a" || !list[0].Ready {
		t.Errorf("%+v", list)
	}
}

// Who looks while handlers change sees those before or those after.
func TestReadersSeeNoHalf(t *testing.T) {
	f := newFarm(t, "a1", "a2")
	f.r.List()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				if names := f.r.names(); len(names) != 2 || names[0][0] != names[1][0] {
					t.Errorf("half a change: %v", names)
					return
				}
			}
		})
	}
	for i := range 100 {
		w := f.want("a1", "a2")
		if i%2 == 0 {
			w = f.want("b1", "b2")
		}
		if _, err := f.apply(w); err != nil {
			t.Error(err)
		}
	}
	cancel()
	all.Wait()
	if err := f.prune(); err != nil || f.folders() != 2 {
		t.Errorf("after 100 changes there are %d revisions, %v", f.folders(), err)
	}
}

// A handler that was removed keeps its pods, through a restart too, takes no new
// ones, and is gone with the last.
func TestDraining(t *testing.T) {
	f := newFarm(t, "a", "b")
	use := f.run("a")
	if _, err := f.apply(f.want("b")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := f.r.Get("a")
		if !errors.Is(err, errdefs.ErrPrecondition) || !strings.Contains(err.Error(), "takes no new pods") || !strings.Contains(err.Error(), "it has 1 pod ") {
			t.Errorf("a new pod: %v", err)
		}
		if f.state("a") != pod.HandlerDraining || f.serves(use) != "one" || f.r.NameOf("a") != "a" {
			t.Errorf("%+v", f.r.List())
		}
		if err := f.prune(); err != nil || f.serves(use) != "one" {
			t.Errorf("with a pod on it: %v", err)
		}
		f.restart()
		f.r.List()
	}
	delete(f.uses, use)
	if err := f.prune(); err != nil {
		t.Error(err)
	}
	if _, err := f.r.Get("a"); !errors.Is(err, errdefs.ErrNotFound) || f.state("a") != "" || f.folders() != 1 {
		t.Errorf("after the last pod: %v, %d revisions", err, f.folders())
	}
}

// A handler that was removed while no daemon ran drains as well, and one that is
// added again takes pods again.
func TestRemovedWithoutADaemon(t *testing.T) {
	f := newFarm(t, "a", "b")
	use := f.run("a")
	f.wanted = f.want("b")
	f.restart()
	if _, err := f.r.Get("a"); !errors.Is(err, errdefs.ErrPrecondition) || f.state("a") != pod.HandlerDraining {
		t.Errorf("%v", err)
	}
	if _, err := f.apply(f.want("a", "b")); err != nil {
		t.Fatal(err)
	}
	if again := f.run("a"); again != use || f.state("a") != pod.HandlerReady {
		t.Errorf("%+v, want %+v", again, use)
	}
}

// A pod keeps the program that it was started with.
func TestProgramIsSwapped(t *testing.T) {
	f := newFarm(t, "a")
	old := f.run("a")
	f.install("two")
	f.change("a", "", "two") // its fingerprint
	now := f.run("a")
	if now == old || f.serves(old) != "one" || f.serves(now) != "two" {
		t.Errorf("%+v has %s, %+v has %s", old, f.serves(old), now, f.serves(now))
	}
	f.install("three")
	f.change("a", "it is broken", "three")
	if _, err := f.r.Get("a"); !errors.Is(err, errdefs.ErrPrecondition) || f.serves(old) != "one" {
		t.Errorf("after a bad one: %v", err)
	}
	delete(f.uses, old)
	if err := f.prune(); err != nil || f.r.revisions.find("a", old.Revision) != nil || f.serves(now) != "two" {
		t.Errorf("after its last pod: %v", err)
	}
	f.restart()
	if f.serves(now) != "two" {
		t.Error("after a restart")
	}
}

// A program that is just being tried is nobody's yet, and stays.
func TestPruneSparesWhatIsTaken(t *testing.T) {
	f := newFarm(t, "a")
	f.block = make(chan struct{})
	tried := make(chan error)
	go func() {
		_, err := f.r.Apply(t.Context(), f.want("a", "b"), nil, nil)
		tried <- err
	}()
	got := make(chan error)
	go func() {
		_, err := f.r.Get("a")
		got <- err
	}()
	for f.trials.Load() < 2 {
		if err := f.r.revisions.drop(f.r.revisions.list(), func(*revision[driver]) bool { return false }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	if err := f.r.revisions.drop(f.r.revisions.list(), func(*revision[driver]) bool { return false }); err != nil || f.folders() != 2 {
		t.Errorf("%d revisions while two programs are tried, %v", f.folders(), err)
	}
	close(f.block)
	if err := errors.Join(<-tried, <-got); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		if use := f.run(name); f.serves(use) != "one" {
			t.Errorf("%+v has no program", use)
		}
	}
}

// While a pod is being started, a program that was replaced may be its own.
func TestPruneWaitsForPodsThatStart(t *testing.T) {
	f := newFarm(t, "a")
	old, err := f.r.Get("a")
	if err != nil {
		t.Fatal(err)
	}
	use := pod.HandlerUse{Handler: "a", Revision: old.info().Revision}
	f.install("two")
	f.change("a", "", "two")
	f.run("a")
	if waits, err := f.r.Prune(func() bool { return true }); !waits || err != nil || f.serves(use) != "one" {
		t.Errorf("waits %v, %v", waits, err)
	}
	// Its record appears before its start is over.
	waits, err := f.r.Prune(func() bool { f.uses[use]++; return false })
	if waits || err != nil || f.serves(use) != "one" {
		t.Errorf("waits %v, %v", waits, err)
	}
}
