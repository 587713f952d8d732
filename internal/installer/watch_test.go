package installer

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	payload "fairlead.run/api/payload/v1alpha1"
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

// Who watches a node takes an old version away once no pod is on it, and not before;
// nobody need install anything for that.
func TestOldVersionsGoWithTheirPods(t *testing.T) {
	releases(t, func(t *testing.T, n *node) {
		// folders are those of versions and of their configs.
		folders := func() []string {
			found, err := filepath.Glob(n.path("usr/bin/test/[^.]*"))
			if err != nil {
				t.Fatal(err)
			}
			return found
		}
		n.install(bundle(t, "test", "1", "1"))
		n.mu.Lock()
		n.sandboxes = []*runtimeapi.PodSandbox{{Id: "old", RuntimeHandler: "test", CreatedAt: time.Now().UnixNano(), Metadata: &runtimeapi.PodSandboxMetadata{Name: "old"}}}
		n.containers = []*runtimeapi.Container{{PodSandboxId: "old", State: runtimeapi.ContainerState_CONTAINER_RUNNING}}
		n.mu.Unlock()
		second := bundle(t, "test", "2", "2")
		n.install(second)
		both := folders()
		if len(both) != 4 {
			t.Fatalf("there are %q", both)
		}
		w := &Watcher{Installer: n.installer(), Sources: sources([]string{second}), Every: time.Millisecond, Ready: func(bool) error { return nil }}
		w.sweep(t.Context())
		if now := folders(); !slices.Equal(now, both) {
			t.Errorf("under a pod there are %q, and were %q", now, both)
		}
		restarts := n.count()
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan []payload.InstallResult, 1)
		go func() { ended <- w.Run(ctx) }()
		n.mu.Lock()
		n.sandboxes = nil
		n.mu.Unlock()
		for late := time.Now().Add(time.Minute); len(folders()) != 2 && time.Now().Before(late); {
			time.Sleep(time.Millisecond)
		}
		end()
		if results := <-ended; results != nil {
			t.Errorf("it repaired %+v", results)
		}
		left := folders()
		if !slices.ContainsFunc(left, func(dir string) bool { return strings.HasPrefix(filepath.Base(dir), "2-") }) || len(left) != 2 || n.count() != restarts {
			t.Errorf("left are %q, after %d restarts", left, n.count()-restarts)
		}
	})
}
