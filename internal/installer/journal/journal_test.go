package journal

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.run/internal/errdefs"
)

func TestRecordsAreReadAsTheyWereWritten(t *testing.T) {
	j := Journal{Dir: filepath.Join(t.TempDir(), "made", "journal")}
	if r, err := j.Read("gvisor"); err != nil || !reflect.DeepEqual(r, &Record{Type: "gvisor"}) {
		t.Fatalf("one that is not there is %+v: %v", r, err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	want := &Record{
		Type: "gvisor", Phase: Writing, Base: "/usr/bin/gvisor", Made: []string{"/opt", "/opt/bin"}, Turn: 3, Place: 1, Served: []string{"runc"}, Written: []string{"/a"},
		Now: &Release{Version: "1", Hash: "a", Handlers: []string{"runsc"}, Render: []byte(`[{"Name":"runsc"}]`), Since: at}, Next: &Release{Version: "2"},
		Old: []Release{{Version: "0", Until: at}}, Files: []File{{Path: "/a", Before: []byte("\x00\xff"), After: "s"}, {Path: "/b", Absent: true, Shared: true}},
		Before: []byte(`{"Name":"containerd"}`), Failures: Failures{Failed: 2, FailedHash: "b", Retry: at, LastError: "no", LastReason: "InUse"},
	}
	if err := j.Write(want); err != nil {
		t.Fatal(err)
	}
	if got, err := j.Read("gvisor"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v: %v", got, want, err)
	}
	if !want.InFlight() {
		t.Error("a record that is being written is not in flight")
	}
	want.Settle()
	if rest := (&Record{Type: want.Type, Base: want.Base, Made: want.Made, Written: want.Written, Now: want.Now, Old: want.Old, Failures: want.Failures}); want.InFlight() || !reflect.DeepEqual(want, rest) {
		t.Errorf("when it is settled it is %+v", want)
	}
	if err := errors.Join(j.Write(&Record{Type: "a"}), j.Forget("gvisor"), j.Forget("gvisor")); err != nil {
		t.Error(err)
	}
	if types, err := j.Types(); err != nil || !slices.Equal(types, []string{"a"}) {
		t.Errorf("%q %v", types, err)
	}
}

func TestInFlight(t *testing.T) {
	for p, want := range map[Phase]bool{Done: false, Deleting: false, Staging: true, Writing: true, Restarting: true, RollingBack: true, Removing: true} {
		if got := (&Record{Phase: p}).InFlight(); got != want {
			t.Errorf("%q: %v", p, got)
		}
	}
}

// A record that is no record stops everything: what it was about is not known. A file
// that was being written when its writer was killed is none, and goes with the journal.
func TestHalfWritten(t *testing.T) {
	j := Journal{Dir: t.TempDir()}
	if err := j.Write(&Record{Type: "a", Base: "/a"}); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(j.Dir, ".a.type.json.tmp-1234")
	if err := os.WriteFile(half, []byte(`{"type":"a","ba`), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := j.All()
	if err != nil || len(all) != 1 || all[0].Base != "/a" {
		t.Fatalf("%+v %v", all, err)
	}
	whole, err := os.ReadFile(j.path("a"))
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if err := os.WriteFile(j.path("a"), whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := j.Read("a"); !errors.Is(err, errdefs.ErrInternal) || !strings.Contains(err.Error(), j.path("a")) {
			t.Fatalf("of %q it is read as %+v: %v", whole[:n], r, err)
		}
		if _, err := j.All(); err == nil {
			t.Fatalf("%q is passed over", whole[:n])
		}
		if err := j.Purge(); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(j.Forget("a"), j.Purge()); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(j.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left are %v: %v", left, err)
	}
}

// A write that fails leaves the record of before, and nothing else.
func TestWriteThatFails(t *testing.T) {
	dir := t.TempDir()
	j := Journal{Dir: filepath.Join(dir, "file")}
	if err := os.WriteFile(j.Dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := j.Write(&Record{Type: "a"}); err == nil || !strings.Contains(err.Error(), "journal of a") {
		t.Errorf("%v", err)
	}
	if _, err := j.Lock(nil); err == nil {
		t.Error("it is locked")
	}
	j = Journal{Dir: dir}
	if err := os.Mkdir(j.path("b"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := j.Write(&Record{Type: "b"}); err == nil {
		t.Error("a folder was replaced")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
}

func TestLock(t *testing.T) {
	j := Journal{Dir: filepath.Join(t.TempDir(), "journal")}
	unlock, err := j.Lock(nil)
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	close(over)
	if _, err := j.Lock(over); !errors.Is(err, errdefs.ErrUnavailable) {
		t.Errorf("a second one gets it: %v", err)
	}
	held, err := os.Open(filepath.Join(j.Dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	if !same(held, held.Name()) {
		t.Error("the lock's file is another one")
	}
	if err := j.Purge(); err != nil {
		t.Fatal(err)
	}
	// Who has waited for a file that is gone must not take it for the lock.
	if same(held, held.Name()) {
		t.Error("a file that was removed is the lock's")
	}
	unlock()
	again, err := j.Lock(over)
	if err != nil {
		t.Fatal(err)
	}
	if same(held, held.Name()) {
		t.Error("the file of before is the lock's")
	}
	again()
}

func TestKeepAway(t *testing.T) {
	j := Journal{Dir: filepath.Join(t.TempDir(), "journal")}
	giveBack, err := j.KeepAway()
	if err != nil {
		t.Fatalf("where no installer has been: %v", err)
	}
	giveBack()
	if _, err := os.Stat(j.Dir); !os.IsNotExist(err) {
		t.Errorf("it has made the folder: %v", err)
	}
	unlock, err := j.Lock(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.KeepAway(); !errors.Is(err, errdefs.ErrUnavailable) {
		t.Errorf("while an installer is at work: %v", err)
	}
	unlock()
	if giveBack, err = j.KeepAway(); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	close(over)
	if _, err := j.Lock(over); !errors.Is(err, errdefs.ErrUnavailable) {
		t.Errorf("an installer that is to be kept away: %v", err)
	}
	giveBack()
	if unlock, err = j.Lock(over); err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestRestarts(t *testing.T) {
	j := Journal{Dir: t.TempDir()}
	if got := j.LastRestart(); !got.IsZero() {
		t.Errorf("before one it is %v", got)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	if err := j.NoteRestart(at); err != nil || !j.LastRestart().Equal(at) {
		t.Errorf("%v %v", j.LastRestart(), err)
	}
	if err := os.WriteFile(filepath.Join(j.Dir, restarts), []byte(`{"last":"20`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := j.LastRestart(); !got.IsZero() {
		t.Errorf("of half a file it is %v", got)
	}
}

func TestPurgeKeepsWhatIsNotItsOwn(t *testing.T) {
	j := Journal{Dir: t.TempDir()}
	if err := errors.Join(j.Write(&Record{Type: "a"}), j.NoteRestart(time.Now()), j.Purge()); err != nil {
		t.Fatal(err)
	}
	if j.LastRestart().IsZero() {
		t.Error("it was purged with a record in it")
	}
	notes := filepath.Join(j.Dir, "notes")
	if err := errors.Join(os.WriteFile(notes, nil, 0o600), j.Forget("a"), j.Purge()); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(j.Dir)
	if err != nil || len(left) != 1 || left[0].Name() != "notes" {
		t.Errorf("left are %v: %v", left, err)
	}
}
