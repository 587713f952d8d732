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

// ground is a kind of node on which stories are told.
type ground struct {
	name, handler string
	port          int32 // of the node; all grounds share its ports
	option        node.Option
	lacks         []string // beginnings of the places that nobody passes there
	mapped        bool     // its pods have user namespaces
}

// networks are the two kinds of node that every place is passed on. Each has
// the handler that the other one has not, so that both are walked.
var networks = []ground{
	{name: "builtin", handler: "crun", port: 31080, lacks: []string{"cni.", onlyMapped}},
	{name: "conflist", handler: "runc", port: 31081, option: node.Conflist, lacks: []string{"bridge.", onlyMapped}},
}

// userNamespaces is where what is made in another way for pods with a user
// namespace is passed once more.
var userNamespaces = ground{name: "user namespaces", handler: "crun", port: 31082, mapped: true}

// onlyMapped is a place that is passed for a volume with mapped owners.
const onlyMapped = "rootfs.volume-mapped"

// ofMapped are the kinds of places at which it makes a difference that the pod
// has a user namespace.
var ofMapped = []string{"sandbox", "rootfs", "bundle", "create", "run", "start", "remove", "recover"}

func (g ground) has(place string) bool {
	return !slices.ContainsFunc(g.lacks, func(s string) bool { return strings.HasPrefix(place, s) })
}

// again are places that are passed several times within one step, each time
// with more behind them.
var again = map[string]int{
	"image.half-fetched": 3, "image.fetched": 3, "image.half-imported": 3,
	"image.layer-prepared": 2, "image.layer-applied": 2, "image.layer-committed": 2,
	"image.recorded": 3, "image.name-unrecorded": 3, "sandbox.namespace-pinned": 3, "sandbox.unmounted": 4, "sandbox.file-written": 3,
	"stop.killed": 2, "rootfs.folders-made": 2,
	"handlers.probed": 3, "handlers.committed": 3, "handlers.published": 3, "handlers.copied": 2, "handlers.shelved": 2,
}

// times is how often a place is passed within one step.
func (g ground) times(place string) int {
	if g.mapped && place == "sandbox.namespace-pinned" {
		return again[place] + 1
	}
	return max(1, again[place])
}

// alike are the kinds of places behind which neither the network nor the handler
// makes a difference. Each of them is passed on one of the nodes.
var alike = []string{"handlers", "image", "daemon", "bundle", "rootfs", "create", "sandbox"}

// passes says whether a place is walked on a ground, which may be that number
// of networks.
func (g ground) passes(i int, place string) bool {
	kind, rest, _ := strings.Cut(place, ".")
	switch {
	case g.mapped:
		return slices.Contains(ofMapped, kind)
	case slices.Contains(alike, kind) && place != onlyMapped:
		return len(rest)%len(networks) == i // either will do
	}
	return g.has(place)
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
	"handlers.copied":           "the handler runs the program that is on the disk",
	"handlers.shelved":          "the handler runs the program that is on the disk",
	"handlers.dropped":          "the folder of a revision goes later",
	"recover.":                  "nobody asked for the recovery; what it takes back is tried again",
}

// whyQuiet is why nobody is told of a failure at a place, or "".
func whyQuiet(network, place string) string {
	kind, _, _ := strings.Cut(place, ".")
	return cmp.Or(quiet[place], quiet[network+"/"+place], quiet[kind+"."])
}

// done are places behind which all is done and only the answer is missing: what
// was made stays, and the repeated request finds it.
var done = []string{"run.committed", "create.committed", "image.listed", "image.lease-ended", "handlers.published"}

// At every place something fails. The request says where and why, leaves
// nothing, and is accepted when it comes again.
func TestFailureAtEveryPlace(t *testing.T) {
	walk(t, "error", func(w *walker, place string, all []request) {
		err := w.tellFailed(all, slices.Contains(done, place))
		why := whyQuiet(w.name, place)
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

// walk calls f for every place on every ground that has it.
func walk(t *testing.T, action string, f func(w *walker, place string, all []request)) {
	for i, g := range append(networks, userNamespaces) {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			options := []node.Option{node.Plain}
			if g.option != nil {
				options = append(options, g.option)
			}
			// With one handler there is one trial at each start.
			n := node.Start(t, fmt.Sprintf("default_handler = %q\n[handlers.%s]\n", g.handler, g.handler), options...)
			if g.mapped && !n.Features(g.handler).GetUserNamespaces() {
				t.Skipf("needs a node on which %s can run pods with a user namespace", g.handler)
			}
			n.Kill(syscall.SIGTERM)
			w := &walker{n: n, ground: g}
			for _, place := range node.Places(t) {
				if !g.passes(i, place) {
					continue
				}
				for nth := range g.times(place) {
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
		all = halfMade(t, w.n, w.ground)
	} else {
		all = newStory(t, w.n, w.ground).requests(place)
	}
	w.images, w.before = strings.HasPrefix(place, "image."), w.n.OfImages()
	w.arm(place, action, nth)
	f(w, place, all)
}
