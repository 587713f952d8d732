package installer

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.run/internal/installer/monitor"
	"fairlead.run/internal/installer/view"
)

// What the node's monitor has done is passed on once, in its order, and again if it
// could not be passed on.
func TestEventsOfTheMonitorAreToldOnce(t *testing.T) {
	root := t.TempDir()
	var told []string
	var failed error
	w := &Watcher{Installer: &Installer{log: slog.New(slog.DiscardHandler), options: Options{Root: root}}}
	w.Tell = func(text string) error {
		if failed != nil {
			return failed
		}
		told = append(told, text[strings.LastIndex(text, " ")+1:])
		return nil
	}
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	since := began
	// look is one turn of the watcher, after which this was told of.
	look := func(want ...string) {
		t.Helper()
		told = nil
		since = w.tell(since)
		if !slices.Equal(told, want) {
			t.Fatalf("it tells %q, want %q", told, want)
		}
	}
	happens := func(after time.Duration, what string) {
		t.Helper()
		e := monitor.Event{Time: began.Add(after), Reason: monitor.RestartFailed, Error: what}
		if err := monitor.Append(w.Events(), e); err != nil {
			t.Fatal(err)
		}
	}
	look() // there is no file
	happens(-time.Minute, "old")
	happens(time.Minute, "a")
	happens(2*time.Minute, "b")
	look("a", "b")
	look()
	happens(3*time.Minute, "c")
	happens(4*time.Minute, "d")
	failed = errors.New("the disk is full")
	look()
	failed = nil
	look("c", "d")

	// A file that cannot be read tells nothing, and what comes after it is not lost.
	aside := filepath.Join(root, "aside")
	if err := errors.Join(os.Rename(w.Events(), aside), os.Mkdir(w.Events(), 0o755)); err != nil {
		t.Fatal(err)
	}
	look()
	if err := errors.Join(os.Remove(w.Events()), os.Rename(aside, w.Events())); err != nil {
		t.Fatal(err)
	}
	happens(5*time.Minute, "e")
	look("e")
	if filepath.Dir(w.Events()) != filepath.Join(root, view.Told) {
		t.Errorf("they are in %s, which containers do not see", w.Events())
	}
}
