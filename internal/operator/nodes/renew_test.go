package nodes

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/internal/operator/names"
	"fairlead.run/internal/operator/validate"
)

// fleet is a pool with the types a and b, and nodes n0, n1, ... in it. Each is told by a
// word for the pod of each type, and by "away" if it does not answer: "old" and "new" are
// ready pods of a release before and of that of now, "failed" and "begun" such that are
// not ready, "ends" one that is being deleted, "none" is that there is none, "lacks" that
// the node was not marked for the type, and "other" that it is not for its machines.
func fleet(told ...string) (*Pool, []*corev1.Node) {
	p := &Pool{Name: "p", Claims: true, Chooses: func(*corev1.Node) bool { return true }, Valid: true, Types: []string{"a", "b"}}
	for _, typ := range p.Types {
		p.Runtimes = append(p.Runtimes, Runtime{Type: typ, Offered: true, Revision: "2", Pods: map[string][]Installer{}, Machines: validate.Machines{Architectures: []string{"amd64"}}})
	}
	pods := map[string]Installer{
		"old": {Revision: "1", Ready: true}, "new": {Revision: "2", Ready: true}, "failed": {Revision: "1"}, "begun": {Revision: "2"}, "ends": {Revision: "1", Ends: true},
	}
	var nodes []*corev1.Node
	for i, text := range told {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), Labels: map[string]string{gardener.LabelPool: "p", corev1.LabelArchStable: "amd64"}}}
		words := strings.Fields(text)
		if words[len(words)-1] != "away" {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		}
		for at := range p.Types {
			r, word := &p.Runtimes[at], words[at]
			if word == "lacks" {
				continue
			}
			n.Labels[names.Phase+r.Type], n.Labels[names.Ready+r.Type] = names.Install.Value("p"), "true"
			if word == "other" {
				n.Labels[corev1.LabelArchStable] = "arm64"
			}
			if pod, is := pods[word]; is {
				pod.Name = word + r.Type
				r.Pods[n.Name] = []Installer{pod}
			}
		}
		nodes = append(nodes, n)
	}
	return p, nodes
}

func TestRenewal(t *testing.T) {
	for name, test := range map[string]struct {
		nodes   []string
		most    int
		deleted string // what is deleted, by nodes
		begin   string // nodes that begin with something new
	}{
		"all are done":                        {[]string{"new new", "new new"}, 1, "", ""},
		"a node has its turn with both":       {[]string{"old old", "old old", "old old"}, 1, "n0:olda,oldb", ""},
		"several at a time":                   {[]string{"old old", "old new", "new old"}, 2, "n0:olda,oldb n1:olda", ""},
		"one is at it":                        {[]string{"begun new", "old old"}, 1, "", ""},
		"one pod ends":                        {[]string{"new ends", "old old"}, 1, "", ""},
		"one pod is missing":                  {[]string{"new none", "old old"}, 1, "", ""},
		"the other type joins":                {[]string{"begun old", "old old"}, 1, "n0:oldb", ""},
		"the other type joins while one ends": {[]string{"ends old", "old old"}, 1, "n0:oldb", ""},
		"a node that is away counts":          {[]string{"old old", "new new away"}, 1, "", ""},
		"and keeps its pods":                  {[]string{"old old away", "failed old away", "old old"}, 3, "n2:olda,oldb", ""},
		"what fails is replaced at once":      {[]string{"old old", "failed new"}, 1, "n1:faileda", ""},
		"with all types of its node":          {[]string{"old old", "failed old"}, 1, "n1:faileda,oldb", ""},
		"but at the same pace":                {[]string{"failed new", "new failed", "old old"}, 1, "n0:faileda", ""},
		"and nodes that fail count":           {[]string{"failed new", "new failed", "old old"}, 2, "n0:faileda n1:failedb", ""},
		"though nodes are away":               {[]string{"failed new", "new new away"}, 1, "n0:faileda", ""},
		"not while another one is at it":      {[]string{"failed new", "begun new"}, 1, "", ""},
		"new nodes go first":                  {[]string{"old old", "lacks lacks"}, 1, "", "n1"},
		"new nodes count":                     {[]string{"old old", "old old", "lacks lacks"}, 2, "n0:olda,oldb", "n2"},
		"new nodes do not wait for the away":  {[]string{"begun new away", "lacks lacks"}, 1, "", "n1"},
		"new nodes wait for the others":       {[]string{"begun new", "lacks lacks"}, 1, "", ""},
		"a new type comes with the release":   {[]string{"old lacks", "old old"}, 1, "n0:olda", "n0"},
		"another machine waits for no pod":    {[]string{"other other", "old old"}, 1, "n1:olda,oldb", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, nodes := fleet(test.nodes...)
			for range 2 { // in whichever order a cache has them
				pace := p.Pace(nodes, test.most)
				var deleted, begin []string
				for _, n := range nodes {
					var pods []string
					for _, one := range p.outdated(n) {
						pods = append(pods, one.Name)
					}
					if pace.Renewed[n.Name] && len(pods) > 0 {
						deleted = append(deleted, n.Name+":"+strings.Join(pods, ","))
					}
					if pace.Admitted[n.Name] && p.progress(n) != working {
						begin = append(begin, n.Name)
					}
				}
				slices.Sort(deleted)
				if got := strings.Join(deleted, " "); got != test.deleted {
					t.Errorf("deleted: %q, want %q", got, test.deleted)
				}
				if got := strings.Join(begin, " "); got != test.begin {
					t.Errorf("begin: %q, want %q", got, test.begin)
				}
				slices.Reverse(nodes)
			}
		})
	}
}

// Without its DaemonSet nobody knows which release is that of now, and nobody would make
// a pod anew.
func TestNothingIsRenewedWithoutDaemonSet(t *testing.T) {
	p, nodes := fleet("old old")
	p.Runtimes[0].Revision, p.Runtimes[1].Revision = "", ""
	if got := p.outdated(nodes[0]); len(got) > 0 || p.turn(nodes[0]) != current {
		t.Errorf("%v", got)
	}
}
