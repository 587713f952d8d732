package join

import (
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/manifest"
	"fairlead.run/internal/node/source"
)

// given are the pods that a node is to run: those that the API server has bound to it,
// and static ones, which come from manifests and need no API server.
type given struct {
	run     func(pods []*corev1.Pod, unread ...string) // all of them
	mirrors func(static []*corev1.Pod, unread ...string)

	mu     sync.Mutex // also for calls of run, so that the last one is the newest
	bound  []*corev1.Pod
	heard  bool // the API server has said which
	static []*corev1.Pod
	unread []string // sources of static pods
}

// bind has these run for the API server.
func (g *given) bind(pods []*corev1.Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bound, g.heard = pods, true
	g.hand()
}

// keep has these run for manifests.
func (g *given) keep(static []*corev1.Pod, unread []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.static, g.unread = static, unread
	g.mirrors(static, unread...)
	g.hand()
}

// hand hands all of them over. Static pods come first, as they may be what an API
// server needs to run. The caller holds mu.
func (g *given) hand() {
	unread := g.unread
	if !g.heard {
		unread = append([]string{source.API}, unread...)
	}
	g.run(slices.Concat(g.static, g.bound), unread...)
}

// all are they all, as they were handed over last.
func (g *given) all() []*corev1.Pod {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Concat(g.static, g.bound)
}

// manifests takes a new set of what the sources of static pods hold.
func (n *Node) manifests(s source.Set) {
	problems := s.Problems
	var static []*corev1.Pod
	if s.Objects != nil {
		pods, more := onlyPods(s.Objects)
		problems = append(problems, more...)
		for _, p := range source.Static(pods, source.Node{Name: n.cfg.Node.Name, Cluster: true}) {
			static = append(static, p.Pod)
		}
	}
	n.complain(problems)
	n.given.keep(static, s.Unread)
}

// onlyPods are the pods of manifests. Everything else is the API server's to keep.
func onlyPods(o *manifest.Objects) (pods []*manifest.Pod, problems []source.Problem) {
	refuse := func(origin, kind string) {
		problems = append(problems, source.Problem{Origin: origin, Err: fmt.Errorf(
			"%s: a node takes only Pods from manifests; create the %s in the API server", origin, kind)})
	}
	owners := map[string]bool{}
	for _, p := range o.Pods {
		if p.OwnerKind == "" {
			pods = append(pods, p)
		} else if name := p.OwnerKind + " " + p.Namespace + "/" + p.Owner; !owners[name] {
			owners[name] = true
			refuse(p.Origin, p.OwnerKind)
		}
	}
	for _, w := range o.Workloads {
		refuse(w.Origin, w.Kind)
	}
	for name := range o.Classes {
		refuse("RuntimeClass "+name, "RuntimeClass")
	}
	for key := range o.ConfigMaps {
		refuse("ConfigMap "+key.String(), "ConfigMap")
	}
	for key := range o.Secrets {
		refuse("Secret "+key.String(), "Secret")
	}
	for key := range o.Claims {
		refuse("PersistentVolumeClaim "+key.String(), "PersistentVolumeClaim")
	}
	return pods, problems
}

// complain tells, once as long as it lasts, what is wrong with manifests.
func (n *Node) complain(problems []source.Problem) {
	now := map[string]bool{}
	for _, p := range problems {
		text := p.Err.Error()
		now[text] = true
		if !n.told[text] {
			n.cfg.Log.Warn("a manifest of static pods is wrong", "origin", p.Origin, "error", text)
			n.cluster.NodeEvent(corev1.EventTypeWarning, p.Event(), text)
		}
	}
	n.told = now
}
