package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"fairlead.run/test/node"
)

// networks are the two kinds of node that every place is passed on. Each has
// the handler that the other one has not, so that both are walked.
var networks = []struct {
	name, handler string
	option        node.Option
	without       string // places of the other network
}{
	{"builtin", "crun", nil, "cni."},
	{"conflist", "runc", node.Conflist, "bridge."},
}

// again are places that are passed several times within one step, each time
// with more behind them.
var again = map[string]int{
	"image.half-fetched": 3, "image.fetched": 3, "image.half-imported": 3,
	"image.layer-prepared": 2, "image.layer-applied": 2, "image.layer-committed": 2,
	"image.recorded": 3, "image.name-unrecorded": 3, "sandbox.namespace-pinned": 3, "sandbox.unmounted": 4, "sandbox.file-written": 3,
	"stop.killed": 2,
}

// alike are the kinds of places behind which neither the network nor the handler
// makes a difference. Each of them is passed on one of the nodes.
var alike = []string{"image", "daemon", "bundle", "rootfs", "create", "sandbox"}

// passes says whether the node number i walks a place.
func passes(i int, place string) bool {
	kind, rest, _ := strings.Cut(place, ".")
	if slices.Contains(alike, kind) {
		return len(rest)%len(networks) == i // either will do
	}
	return !strings.HasPrefix(place, networks[i].without)
}

// inRecovery are places that only a daemon passes that finds something half made.
func inRecovery(place string) bool {
	return strings.HasPrefix(place, "recover.") || place == "cni.gc-done"
}

// The daemon is killed at every place that there is. The next one accepts the
// request that was cut off, answers it as the first would have, and leaves
// nothing of either attempt.
func TestDaemonKilledAtEveryPlace(t *testing.T) {
	walk(t, "kill", func(w *walker, _ string, all []request) {
		cut := w.tellKilled(all)
		if !w.wasHit() {
			w.t.Fatal("no daemon came by")
		}
		w.t.Logf("cut off: %s", cut)
	})
}

// quiet are places at which a failure is nobody's answer: what was to be done
// is done later or by somebody else. A name of a network limits it to that one.
var quiet = map[string]string{
	"bridge.link-gone":          "addresses are freed after the answer, until it succeeds",
	"bridge.flushed":            "addresses are freed after the answer, until it succeeds",
	"builtin/network.forgotten": "addresses are freed after the answer, until it succeeds",
	"daemon.leaving":            "the daemon ends all the same; the next one takes network and monitor down",
	"daemon.network-purged":     "the daemon ends all the same; the next one takes network and monitor down",
	"daemon.monitor-ended":      "the daemon ends all the same; the next one takes network and monitor down",
	"bridge.removed":            "the daemon ends all the same; the next one takes network and monitor down",
	"attach.ended":              "the client has gone",
	"attach.closed":             "the client has gone",
	"exec.forgotten":            "the command has ended, and its caller has the answer",
	"exit.seen":                 "nobody asked for the end of a process; it is recorded later",
	"exit.recorded":             "nobody asked for the end of a process; it is recorded later",
	"exit.tidied":               "removing the container does it again",
	"cni.gc-done":               "the next start collects again",
	"recover.":                  "nobody asked for the recovery; what it takes back is tried again",
}

// whyQuiet is why nobody is told of a failure at a place, or "".
func whyQuiet(network, place string) string {
	kind, _, _ := strings.Cut(place, ".")
	return cmp.Or(quiet[place], quiet[network+"/"+place], quiet[kind+"."])
}

// done are places behind which all is done and only the answer is missing: what
// was made stays, and the repeated request finds it.
var done = []string{"run.committed", "create.committed", "image.listed", "image.lease-ended"}

// At every place something fails. The request says where and why, leaves
// nothing, and is accepted when it comes again.
func TestFailureAtEveryPlace(t *testing.T) {
	walk(t, "error", func(w *walker, place string, all []request) {
		err := w.tellFailed(all, slices.Contains(done, place))
		why := whyQuiet(w.network, place)
		switch {
		case !w.wasHit():
			w.t.Fatal("no daemon came by")
		case err == nil && why == "":
			w.t.Error("nobody was told of the failure")
		case err != nil && why != "":
			w.t.Errorf("this failure is told, and was to be nobody's answer: %s; %v", why, err)
		case err != nil && !strings.Contains(err.Error(), "failpoint "+place):
			w.t.Errorf("the error does not say what failed: %v", err)
		}
		w.t.Logf("said: %v", err)
	})
}

// walk calls f for every place on every network that has it.
func walk(t *testing.T, action string, f func(w *walker, place string, all []request)) {
	for i, net := range networks {
		t.Run(net.name, func(t *testing.T) {
			t.Parallel()
			options := []node.Option{node.Plain}
			if net.option != nil {
				options = append(options, net.option)
			}
			// With one handler there is one trial at each start.
			n := node.Start(t, fmt.Sprintf("default_handler = %q\n[handlers.%s]\n", net.handler, net.handler), options...)
			n.Kill(syscall.SIGTERM)
			w := &walker{n: n, network: net.name, handler: net.handler}
			for _, place := range node.Places(t) {
				if !passes(i, place) {
					continue
				}
				for nth := range max(1, again[place]) {
					t.Run(fmt.Sprintf("%s@%d", place, nth+1), func(t *testing.T) { w.walk(t, place, action, nth+1, f) })
				}
			}
		})
	}
}

func (w *walker) walk(t *testing.T, place, action string, nth int, f func(w *walker, place string, all []request)) {
	outer := w.n.T
	w.n.T, w.t = t, t
	defer func() { w.n.T = outer }()
	defer w.finish()
	var all []request
	if inRecovery(place) {
		all = halfMade(t, w.n, w.handler)
	} else {
		all = newStory(t, w.n, w.handler).requests(place)
	}
	w.images, w.before = strings.HasPrefix(place, "image."), w.n.OfImages()
	w.arm(place, action, nth)
	f(w, place, all)
}
