package foreground

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

	"fairlead.run/internal/node/endpoint"
	"fairlead.run/internal/node/fakeruntime"
	"fairlead.run/internal/node/handlers"
	"fairlead.run/internal/node/images"
	"fairlead.run/internal/node/logs"
	"fairlead.run/internal/node/manifest"
	"fairlead.run/internal/node/podspec"
)

// manifestOf writes a pod. Each container is "name: argument".
func manifestOf(name, policy string, containers ...string) string {
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n  restartPolicy: " + policy + "\n  containers:\n"
	for _, c := range containers {
		n, arg, _ := strings.Cut(c, ": ")
		text += "  - {name: " + n + ", image: 'i:1', args: ['" + arg + "']}\n"
	}
	return text + "---\n"
}

// withInit puts init containers before those of a manifest.
func withInit(text string, inits ...string) string {
	lines := "  initContainers:\n"
	for _, c := range inits {
		lines += "  - " + c + "\n"
	}
	return strings.Replace(text, "  containers:\n", lines+"  containers:\n", 1)
}

// cared is a pod of one container that runs on, with more fields of its own and of the
// pod's.
func cared(name, policy, fields, podFields string) string {
	text := strings.Replace(manifestOf(name, policy, "main: run"), "args: ['run']}", "args: ['run'], "+fields+"}", 1)
	return strings.Replace(text, "spec:\n", "spec:\n"+podFields, 1)
}

// watcher records what an observer is told.
type watcher struct {
	mu    sync.Mutex
	lines []string
	notes []string
	told  []Status
}

func (w *watcher) Note(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes = append(w.notes, text)
}

func (w *watcher) Changed(s Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, s)
}

func (w *watcher) Line(_, pod, container string, l logs.Line) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, pod+"/"+container+": "+string(l.Text))
}

func (w *watcher) noted(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.notes, func(n string) bool { return strings.Contains(n, text) })
}

func (w *watcher) saw(message string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.told, func(s Status) bool { return s.Message == message })
}

// stage is one test's run, on a runtime that others may share.
type stage struct {
	*Run
	fake  *fakeruntime.Runtime
	seen  *watcher
	plans []Plan
	root  string
}

// newStage decodes manifests and resolves them against a fake.
func newStage(t *testing.T, fake *fakeruntime.Runtime, text string) *stage {
	t.Helper()
	objects, err := manifest.Decode([]manifest.Source{{Name: "t.yaml", Data: []byte(text)}})
	if err != nil {
		t.Fatal(err)
	}
	set, err := handlers.List(t.Context(), fake)
	if err != nil {
		t.Fatal(err)
	}
	plans, err := Resolve(set, objects.Pods, objects.Classes)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{fake: fake, seen: &watcher{}, plans: plans, root: t.TempDir()}
	s.Run = New(Config{
		Endpoint: &endpoint.Endpoint{Runtime: fake, Images: fake.Images, Name: "fake"}, Puller: images.CRIPuller{Images: fake.Images},
		Objects: objects, Node: podspec.Node{Name: "n", IPs: podspec.Fixed([]string{"192.0.2.7"}), DNS: podspec.Fixed(podspec.DNS{})}, Observer: s.seen, Root: s.root + "/lib", State: s.root + "/run",
	})
	return s
}

// runs starts the pods, and waits for their end in the background. The function ends both.
func (s *stage) runs(t *testing.T) (stop func()) {
	t.Helper()
	if err := s.Start(t.Context(), s.plans); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Wait(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, ErrPodFailed) {
			t.Error(err)
		}
		s.end(t)
	}
}

// end ends the pods, and wants nothing left.
func (s *stage) end(t *testing.T) {
	t.Helper()
	if err := s.Stop(t.Context(), nil); err != nil {
		t.Error(err)
	}
	s.wantNothing(t)
}

// wantNothing looks for what a run left in its folders and in the runtime.
func (s *stage) wantNothing(t *testing.T) {
	t.Helper()
	for _, dir := range []string{"lib/run", "run/run", "lib/agent"} {
		entries, _ := os.ReadDir(filepath.Join(s.root, dir))
		for _, e := range entries {
			t.Errorf("left: %s/%s", dir, e.Name())
		}
	}
	if locks, _ := filepath.Glob(filepath.Join(s.root, "run/*.lock")); len(locks) > 0 {
		t.Errorf("left: %q", locks)
	}
	if boxes, containers := s.fake.Sandboxes(), s.fake.Containers(); len(boxes)+len(containers) > 0 {
		t.Errorf("left: %v %v", boxes, containers)
	}
}

// starts is how often a container was started, POD/CONTAINER.
func (s *stage) starts(name string) int { return len(s.fake.Calls("start " + name)) }

// await waits until something is so. The test's own deadline is the limit.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not come", what)
		}
	}
}
