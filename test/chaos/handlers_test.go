package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead.run/internal/failpoint"
	"fairlead.run/test/node"
)

// cyclesInRound times the rounds are more than 200.
const cyclesInRound = 16

// A handler is added and removed, in every fifth cycle also changed under a pod, and
// each step of that fails once. Over the rounds neither descriptors, goroutines,
// threads, mounts nor records become more, and no revision is left at the end.
func TestHandlersLeakNothing(t *testing.T) {
	g := networks[0]
	l := &leaker{t: t, dir: t.TempDir(), parts: map[string]string{}, failed: map[string]int{}}
	const part = "handlers"
	var spec []string
	for _, place := range node.Places(t) {
		if strings.HasPrefix(place, "handlers.") {
			l.parts[place] = part
			l.spare(place)
			spec = append(spec, place+"=error!"+filepath.Join(l.dir, place))
		}
	}
	l.n = node.Start(t, fmt.Sprintf("default_handler = %q\n[handlers.%s]\n", g.handler, g.handler), node.Plain,
		node.WithEnv(failpoint.Env+"="+strings.Join(spec, ",")))
	l.story = newStory(t, l.n, g)
	run := func(rounds int) (out []sample) {
		for range rounds {
			for i := range cyclesInRound {
				l.describe()
				all := l.handlerRequests()
				if i%5 > 0 {
					all = slices.DeleteFunc(all, func(r request) bool {
						return strings.HasSuffix(r.name, "the pod") || r.name == "change the handler"
					})
				}
				l.failing(part, all...)
			}
			out = append(out, l.held())
		}
		return out
	}
	wantNoGrowth(t, run)
	for place := range l.parts {
		if l.failed[place] == 0 {
			t.Errorf("nobody came by %s", place)
		}
	}
	// What could not be removed in the last cycle goes with the next change.
	for _, r := range l.handlerRequests() {
		if !strings.HasSuffix(r.name, "the pod") {
			l.persist(r)
		}
	}
	node.Eventually(t, "the revisions are gone", func() bool {
		left, err := os.ReadDir(filepath.Join(l.n.Root, "handlers"))
		return err == nil && len(left) == 1 && left[0].Name() == g.handler
	})
}
