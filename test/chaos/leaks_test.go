package chaos

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/failpoint"
	"fairlead.run/test/node"
)

// The parts of a round. What takes back what a failed request has made passes
// places of the later parts, which have to work meanwhile.
const (
	making   = "making"
	starting = "starting in the monitor"
	unmaking = "unmaking"
	ofImages = "images"
)

// partOf is the part of a round in which a place fails, or "" where it fails in
// none: a daemon that cannot start, or that ends, takes all it had with it.
func partOf(place string) string {
	if kind, what, _ := strings.Cut(place, "."); kind == "monitor" {
		switch kind, what, _ = strings.Cut(what, "."); {
		case kind == "start" && what != "undone" && what != "unanswered" || kind == "exec" || kind == "signal" || kind == "attach" || kind == "close-stdin" || kind == "reopen":
			return starting
		}
		return ""
	}
	kind, what, _ := strings.Cut(place, ".")
	undone := slices.ContainsFunc([]string{"removed", "unmounted", "withdrawn", "link-gone", "flushed", "forgotten", "del-"}, func(s string) bool {
		return strings.HasPrefix(what, s) || strings.HasSuffix(what, "-"+s)
	})
	switch {
	case place == "bridge.removed" || place == "cni.gc-done" || place == "image.swept" || place == "image.leases-dropped",
		kind == "daemon", kind == "recover", kind == "handlers": // TestHandlersLeakNothing has these
		return ""
	case kind == "image":
		return ofImages
	case undone, kind == "stop", kind == "remove", kind == "stop-pod", kind == "remove-pod", kind == "delete", kind == "exit":
		return unmaking
	}
	return making
}

// leaker fails everything that a daemon and a monitor do, again and again.
type leaker struct {
	n      *node.Node
	t      *testing.T
	dir    string            // has a file for each place that works
	parts  map[string]string // of all places
	failed map[string]int    // how often, by place
	*story
}

// Requests fail at one place after the other until they succeed, many times,
// in one daemon and one monitor. These hold no more afterwards: over the rounds
// neither descriptors nor goroutines, threads, mounts or records become more.
func TestFailuresLeakNothing(t *testing.T) {
	for _, net := range networks {
		t.Run(net.name, func(t *testing.T) {
			t.Parallel()
			l := &leaker{t: t, dir: t.TempDir(), parts: map[string]string{}, failed: map[string]int{}}
			options := []node.Option{node.Plain, node.WithEnv(
				failpoint.Env+"="+l.spec(node.Places(t), net),
				failpoint.MonitorEnv+"="+l.spec(node.MonitorPlaces(t), net),
			)}
			if net.option != nil {
				options = append(options, net.option)
			}
			l.n = node.Start(t, fmt.Sprintf("default_handler = %q\n[handlers.%s]\n", net.handler, net.handler), options...)
			l.story = newStory(t, l.n, net)
			run := func(rounds int) (out []sample) {
				for range rounds {
					l.round()
					out = append(out, l.held())
				}
				return out
			}
			wantNoGrowth(t, run)
			for _, place := range slices.Sorted(maps.Keys(l.parts)) {
				if l.failed[place] == 0 {
					t.Errorf("nobody came by %s in %d rounds", place, churnWarmup+leakRounds)
				}
			}
		})
	}
}

// wantNoGrowth looks at what is held after each of many rounds.
func wantNoGrowth(t *testing.T, run func(rounds int) []sample) {
	t.Helper()
	run(churnWarmup)
	samples := run(leakRounds)
	for _, name := range slices.Sorted(maps.Keys(samples[0])) {
		t.Logf("%-40s %6.0f then %6.0f", name, samples[0][name], samples[len(samples)-1][name])
	}
	grown := growth(samples)
	if len(grown) > 0 {
		t.Logf("once more, because these grew: %s", strings.Join(grown, "; "))
		grown = grownAgain(grown, growth(run(leakRounds)))
	}
	for _, g := range grown {
		t.Error(g)
	}
}

// leakRounds count, as many as the test of growth was made for.
const leakRounds = churnRounds

// spec has every place that belongs to a part fail once each time that it is
// aimed at.
func (l *leaker) spec(places []string, on ground) string {
	var out []string
	for _, place := range places {
		part := partOf(place)
		if part == "" || !on.has(place) {
			continue
		}
		l.parts[place] = part
		l.spare(place)
		out = append(out, place+"=error!"+filepath.Join(l.dir, place))
	}
	return strings.Join(out, ",")
}

// spare lets a place work.
func (l *leaker) spare(place string) {
	if err := os.WriteFile(filepath.Join(l.dir, place), nil, 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// aimed are the places that are still to fail.
func (l *leaker) aimed() (out []string) {
	for place := range l.parts {
		if _, err := os.Stat(filepath.Join(l.dir, place)); err != nil {
			out = append(out, place)
		}
	}
	return out
}

// failing makes requests while every place of a part fails once.
func (l *leaker) failing(part string, all ...request) {
	l.t.Helper()
	for place, of := range l.parts {
		if of == part {
			if err := os.Remove(filepath.Join(l.dir, place)); err != nil {
				l.t.Fatal(err)
			}
		}
	}
	for _, r := range all {
		l.persist(r)
	}
	rest := l.aimed()
	for place, of := range l.parts {
		if of == part && !slices.Contains(rest, place) {
			l.failed[place]++
		}
	}
	for _, place := range rest {
		l.spare(place)
	}
}

// persist repeats a request as long as something is made to fail.
func (l *leaker) persist(r request) {
	l.t.Helper()
	for {
		before := len(l.aimed())
		err := r.do()
		if err == nil {
			return
		}
		if before == 0 || len(l.aimed()) == before {
			l.t.Fatalf("%s, at which nothing more was made to fail: %v", r.name, err)
		}
	}
}

// round is the life of a pod and of two images.
func (l *leaker) round() {
	l.t.Helper()
	l.describe()
	all := l.podRequests()
	stop := slices.IndexFunc(all, func(r request) bool { return r.name == "stop the first container" })
	l.failing(making, all[:stop]...)
	l.failing(starting, l.monitorRequests(false)...)
	l.failing(starting, l.monitorRequests(true)...)
	l.failing(unmaking, append([]request{{name: "exec before the end", do: l.exec}}, all[stop:]...)...)
	l.failing(ofImages, l.imageRequests()...)
}

// monitorRequests pass the places of the monitor. A container whose start
// failed there has ended, and its owner makes another.
func (l *leaker) monitorRequests(tty bool) []request {
	c := l.container()
	c.Config.StdinOnce, c.Config.Tty = true, tty
	all := []request{
		{name: "start by the monitor", do: func() error { return l.anew(c) }},
		{name: "exec by the monitor", do: func() error { return l.execIn(c, tty) }},
		{name: "rotate", do: func() error {
			_, err := l.n.Runtime.ReopenContainerLog(l.n.Ctx(), &runtimeapi.ReopenContainerLogRequest{ContainerId: c.ID})
			return err
		}},
		{name: "attach", do: func() error { return l.attachTo(c, "\n") }}, // input that was used is closed with the session
		{name: "have the input closed", do: l.inputClosed},
	}
	if !tty { // once is enough, as it takes a second
		all = append(all, request{name: "exec beyond its time", do: func() error { return beyondItsTime(c) }})
	}
	return all
}

// inputClosed waits for the monitor to close the input of a session that has ended,
// which nobody is told of. Whether it came there is for the test to say in the end.
func (l *leaker) inputClosed() error {
	settled(func() []string {
		return slices.DeleteFunc(l.aimed(), func(place string) bool { return place != "monitor.close-stdin.recorded" })
	})
	return nil
}

func (l *leaker) execIn(c *node.Container, tty bool) error {
	if tty {
		return (&monitorStory{aimed: &aimed{Node: l.n}, t: l.t}).execTerminal(c)
	}
	_, err := l.n.Runtime.ExecSync(l.n.Ctx(), &runtimeapi.ExecSyncRequest{ContainerId: c.ID, Cmd: []string{"echo", "here"}})
	return err
}

// anew makes and starts a container, and removes it again if that failed.
func (l *leaker) anew(c *node.Container) error {
	if err := l.create(c); err != nil {
		return err
	}
	err := c.TryStart()
	if err != nil {
		c.Remove()
	}
	return err
}

// held is what daemon and monitor have once all is over.
func (l *leaker) held() sample {
	l.t.Helper()
	if left := settled(l.n.OfPods); len(left) > 0 {
		l.t.Fatalf("left of a round:\n%s", strings.Join(left, "\n"))
	}
	return least(l.n)
}
