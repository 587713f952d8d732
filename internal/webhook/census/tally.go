package census

import (
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/cluster"
)

// group is pods that are alike in all that is told of them.
type group struct {
	class   string
	phase   corev1.PodPhase
	verdict cluster.Verdict
	// node is where they wait for their start; empty for those that wait for a
	// node, and for those that run.
	node string
}

// failure is that a scheduler found no node.
type failure struct {
	class   string
	verdict cluster.Verdict
}

// tally follows pods as they change: to go through all of them at each scrape
// would hold up the watch in a cluster that has many.
type tally struct {
	mu       sync.Mutex
	pods     map[group]int
	failures map[failure]int // since they were taken last
}

func newTally() *tally { return &tally{pods: map[group]int{}, failures: map[failure]int{}} }

func groupOf(p *cluster.Pod) group {
	g := group{class: p.Class, phase: p.Phase, verdict: p.Verdict}
	if g.phase == "" {
		g.phase = corev1.PodPending
	}
	if g.phase == corev1.PodPending {
		g.node = p.Node
	}
	return g
}

// changed is called for each pod that comes, changes or goes. Nearly always
// nothing of it is told.
func (t *tally) changed(_ string, old, now *cluster.Pod) {
	var was, is group
	var uid types.UID
	if old != nil {
		was, uid = groupOf(old), old.UID
	}
	if now != nil {
		is = groupOf(now)
	}
	if old != nil && now != nil && was == is && old.UID == now.UID {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if old != nil {
		if t.pods[was]--; t.pods[was] == 0 {
			delete(t.pods, was)
		}
	}
	if now == nil {
		return
	}
	t.pods[is]++
	if is.verdict.Failed() && (!was.verdict.Failed() || now.UID != uid) {
		t.failures[failure{is.class, is.verdict}]++
	}
}

// take is how many pods there are of each group, and what has failed since it was
// called last.
func (t *tally) take() (pods map[group]int, failures map[failure]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	failures, t.failures = t.failures, map[failure]int{}
	return maps.Clone(t.pods), failures
}
