package census

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/telemetry"
	"fairlead.run/pkg/runtimeclass"
	"fairlead.run/pkg/runtimeclass/policy"
)

type classOption func(*nodev1.RuntimeClass)

func class(name, handler string, options ...classOption) *nodev1.RuntimeClass {
	c := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}, Handler: handler, Scheduling: &nodev1.Scheduling{}}
	for _, o := range options {
		o(c)
	}
	return c
}

func selects(key, value string) classOption {
	return func(c *nodev1.RuntimeClass) { c.Scheduling.NodeSelector = map[string]string{key: value} }
}

func tolerates(key string) classOption {
	return func(c *nodev1.RuntimeClass) {
		c.Scheduling.Tolerations = []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists}}
	}
}

func standard(c *nodev1.RuntimeClass) { c.Annotations[policy.AnnotationDefault] = "true" }

func isolated(level string) classOption {
	return func(c *nodev1.RuntimeClass) { c.Labels[policy.LabelIsolation] = level }
}

type nodeOption func(*corev1.Node)

func node(name string, options ...nodeOption) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for _, o := range options {
		o(n)
	}
	return n
}

func labelled(key, value string) nodeOption {
	return func(n *corev1.Node) { n.Labels[key] = value }
}

func published(handler, verdict string) nodeOption {
	return labelled("handler.fairlead.run/"+handler, verdict)
}

func lists(handlers ...string) nodeOption {
	return func(n *corev1.Node) {
		for _, name := range handlers {
			n.Status.RuntimeHandlers = append(n.Status.RuntimeHandlers, corev1.NodeRuntimeHandler{Name: name})
		}
	}
}

func tainted(key string, effect corev1.TaintEffect) nodeOption {
	return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect}) }
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

const (
	pending = corev1.PodPending
	running = corev1.PodRunning
)

// told is what is told of a cluster, after an earlier one was counted.
func told(t *testing.T, s seen, failed map[failure]int) string {
	t.Helper()
	var r telemetry.Registry
	c := &Census{tally: newTally(), named: map[string]bool{}}
	c.Register(&r)
	return c.tells(t, &r, s, failed)
}

// tells makes a census of what was seen, and is what is told then.
func (c *Census) tells(t *testing.T, r *telemetry.Registry, s seen, failed map[failure]int) string {
	t.Helper()
	x := newIndex(s)
	c.last = count(s, x)
	c.last.taken = time.Now()
	c.countFailures(failed, x)
	return written(t, r)
}

func written(t *testing.T, r *telemetry.Registry) string {
	t.Helper()
	var b strings.Builder
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestCensus(t *testing.T) {
	for name, tt := range map[string]struct {
		seen
		failed map[failure]int
		want   []string // lines, without the prefix that all have
		not    []string // beginnings of lines
	}{
		"an empty cluster": {
			want: []string{`runtimeclasses_default 0`, `runtimeclasses_without_nodes{used="true"} 0`, `handlers_missing 0`, `class_pods{class="_none",phase="Running"} 0`},
			not:  []string{`runtimeclasses{`, `class_nodes{`, `nodes{`},
		},
		"classes by handler and isolation": {
			seen: seen{classes: []*nodev1.RuntimeClass{
				class("a", "runsc", isolated("sandbox"), standard), class("b", "runsc", isolated("sandbox")), class("c", "runsc"), class("d", "kata", isolated("vm"), standard), class("e", "kata", isolated("wrong")),
			}},
			want: []string{
				`runtimeclasses{runtime_handler="kata",isolation="none"} 1`, `runtimeclasses{runtime_handler="kata",isolation="vm"} 1`,
				`runtimeclasses{runtime_handler="runsc",isolation="none"} 1`, `runtimeclasses{runtime_handler="runsc",isolation="sandbox"} 2`,
				`runtimeclasses_default 2`, `runtimeclasses_without_nodes{used="false"} 5`, `handler_classes{runtime_handler="runsc"} 3`, `handlers_missing 2`,
			},
		},
		"how nodes stand to a class": {
			seen: seen{
				classes: []*nodev1.RuntimeClass{class("gvisor", "runsc", selects("kind", "sandbox"), tolerates("sandbox"))},
				nodes: []*corev1.Node{
					node("1", labelled("kind", "sandbox"), lists("", "runc", "runsc")),
					node("2", labelled("kind", "sandbox"), published("runsc", "true"), tainted("sandbox", corev1.TaintEffectNoSchedule)),
					node("3", labelled("kind", "sandbox")),
					node("4", labelled("kind", "sandbox"), lists("runsc"), tainted("gpu", corev1.TaintEffectNoExecute)),
					node("5", labelled("kind", "sandbox"), lists("runsc"), cordoned),
					node("6", labelled("kind", "sandbox"), lists("runc", "runsc"), published("runsc", "false"), cordoned),
					node("7", labelled("kind", "sandbox"), lists("runc")),
					node("8", labelled("kind", "sandbox"), published("runc", "true")),
					node("9", labelled("kind", "other"), lists("runsc")),
					node("10", labelled("kind", "sandbox"), lists("runsc"), tainted("gpu", corev1.TaintEffectPreferNoSchedule)),
				},
			},
			want: []string{
				`class_nodes{class="gvisor",state="open"} 3`, `class_nodes{class="gvisor",state="untold"} 1`, `class_nodes{class="gvisor",state="closed"} 2`,
				`class_nodes{class="gvisor",state="failing"} 1`, `class_nodes{class="gvisor",state="lacking"} 2`,
				`runtimeclasses_without_nodes{used="false"} 0`, `nodes{handlers="untold"} 1`, `nodes{handlers="2"} 1`, `nodes{handlers="1"} 8`,
			},
		},
		"what nodes say of handlers": {
			seen: seen{
				classes: []*nodev1.RuntimeClass{class("a", "runsc"), class("b", "missing")},
				nodes: []*corev1.Node{
					node("1", lists("", "runsc", "kata"), published("runsc", "true"), published("kata", "false")),
					node("2", lists("runsc")),
					node("3", lists("runc"), published("runsc", "true")),
					node("4", published("runsc", "true")),
				},
			},
			want: []string{
				`handler_nodes{runtime_handler="runsc",state="works"} 2`, `handler_nodes{runtime_handler="runsc",state="listed"} 1`, `handler_nodes{runtime_handler="runsc",state="unlisted"} 1`,
				`handler_nodes{runtime_handler="runsc",state="fails"} 0`, `handler_nodes{runtime_handler="kata",state="fails"} 1`, `handler_nodes{runtime_handler="missing",state="works"} 0`,
				`handler_nodes{runtime_handler="missing",state="untold"} 0`, `handlers_missing 1`, `handler_classes{runtime_handler="kata"} 0`, `nodes{handlers="1"} 4`,
			},
			not: []string{`handler_nodes{runtime_handler=""`},
		},
		"a node that is silent may have any handler": {
			seen: seen{classes: []*nodev1.RuntimeClass{class("b", "missing")}, nodes: []*corev1.Node{node("1", lists("")), node("2")}},
			want: []string{`handlers_missing 0`, `handler_nodes{runtime_handler="missing",state="untold"} 1`, `nodes{handlers="0"} 1`, `nodes{handlers="untold"} 1`},
		},
		"pods by class and phase": {
			seen: seen{
				classes: []*nodev1.RuntimeClass{class("a", "runc"), class("idle", "runc")}, nodes: []*corev1.Node{node("1")},
				pods: map[group]int{{class: "a", phase: running}: 3, {class: "a", phase: pending, node: "1"}: 1, {phase: running}: 4, {class: "gone", phase: running}: 2, {class: "a", phase: corev1.PodUnknown}: 1},
			},
			want: []string{
				`class_pods{class="a",phase="Running"} 3`, `class_pods{class="a",phase="Pending"} 1`, `class_pods{class="a",phase="Unknown"} 1`, `class_pods{class="_none",phase="Running"} 4`,
				`class_pods{class="_none",phase="Pending"} 0`, `class_pods{class="_missing",phase="Running"} 2`, `class_pods{class="idle",phase="Running"} 0`,
				`class_scheduling_failures_total{class="a",reason="full"} 0`,
			},
			not: []string{`class_unscheduled_pods{`, `class_stranded_pods{`, `class_scheduling_failures_total{class="idle"`},
		},
		"why pods have no node": {
			seen: seen{
				classes: []*nodev1.RuntimeClass{class("nowhere", "kata"), class("shut", "runsc", selects("kind", "shut")), class("open", "runsc", selects("kind", "open"))},
				nodes:   []*corev1.Node{node("1", lists("runsc"), labelled("kind", "shut"), cordoned), node("2", lists("runsc"), labelled("kind", "open"))},
				pods: map[group]int{
					{class: "nowhere", phase: pending, verdict: cluster.Unfit}: 1, {class: "nowhere", phase: pending, verdict: cluster.Full}: 2, {class: "nowhere", phase: pending, verdict: cluster.Gated}: 3,
					{class: "nowhere", phase: pending}: 4, {class: "shut", phase: pending, verdict: cluster.Unfit}: 5, {class: "open", phase: pending, verdict: cluster.Full}: 6,
					{class: "open", phase: pending, verdict: cluster.Unfit}: 7, {phase: pending, verdict: cluster.Full}: 8, {phase: pending, verdict: cluster.Unfit}: 9, {class: "gone", phase: pending, verdict: cluster.Unfit}: 10,
				},
			},
			failed: map[failure]int{{"nowhere", cluster.Unfit}: 2, {"nowhere", cluster.Full}: 1, {"open", cluster.Full}: 5, {"gone", cluster.Unfit}: 1, {"", cluster.Full}: 3},
			want: []string{
				`class_unscheduled_pods{class="nowhere",reason="unsupported"} 3`, `class_unscheduled_pods{class="nowhere",reason="gated"} 3`, `class_unscheduled_pods{class="nowhere",reason="untried"} 4`,
				`class_unscheduled_pods{class="shut",reason="closed"} 5`, `class_unscheduled_pods{class="open",reason="full"} 6`, `class_unscheduled_pods{class="open",reason="other"} 7`,
				`class_unscheduled_pods{class="_none",reason="full"} 8`, `class_unscheduled_pods{class="_none",reason="other"} 9`, `class_unscheduled_pods{class="_missing",reason="unsupported"} 10`,
				`class_scheduling_failures_total{class="nowhere",reason="unsupported"} 3`, `class_scheduling_failures_total{class="open",reason="full"} 5`, `class_scheduling_failures_total{class="open",reason="other"} 0`,
				`class_scheduling_failures_total{class="_missing",reason="unsupported"} 1`, `class_scheduling_failures_total{class="_none",reason="full"} 3`, `runtimeclasses_without_nodes{used="true"} 1`,
			},
		},
		"pods that wait on a node that cannot start them": {
			seen: seen{
				classes: []*nodev1.RuntimeClass{class("a", "runsc"), class("ok", "runc", tolerates("x"))},
				nodes:   []*corev1.Node{node("1", lists("runc"), tainted("gpu", corev1.TaintEffectNoSchedule)), node("2", lists("runsc"), published("runsc", "false"))},
				pods: map[group]int{
					{class: "a", phase: pending, node: "1"}: 1, {class: "a", phase: pending, node: "2"}: 2, {class: "a", phase: pending, node: "unheard-of"}: 4, {class: "ok", phase: pending, node: "1"}: 8,
					{class: "gone", phase: pending, node: "1"}: 16, {phase: pending, node: "1"}: 32, {class: "a", phase: running}: 64,
				},
			},
			want: []string{`class_stranded_pods{class="a"} 3`, `class_stranded_pods{class="_missing"} 16`},
			not:  []string{`class_stranded_pods{class="ok"`, `class_stranded_pods{class="_none"`, `class_unscheduled_pods{`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := told(t, tt.seen, tt.failed)
			for _, line := range tt.want {
				if !strings.Contains(got, "\nfairlead_cluster_"+line+"\n") {
					t.Errorf("no line %s in:\n%s", line, got)
				}
			}
			for _, line := range tt.not {
				if strings.Contains(got, "\nfairlead_cluster_"+line) {
					t.Errorf("%s in:\n%s", line, got)
				}
			}
		})
	}
}

// fleet is nodes and classes at random, of few labels, so that much of it agrees.
func fleet(r *rand.Rand, nodes, classes int) seen {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	var s seen
	for i := range nodes {
		n := node(fmt.Sprintf("node-%d", r.IntN(1<<30)*1000+i), labelled("kubernetes.io/hostname", fmt.Sprint(i)))
		for _, handler := range []string{"runc", "runsc", "kata"} {
			switch r.IntN(4) {
			case 0:
				lists(handler)(n)
			case 1:
				published(handler, pick("true", "false"))(n)
			}
		}
		if r.IntN(2) == 0 {
			labelled("kind", pick("a", "b", ""))(n)
		}
		if r.IntN(3) == 0 {
			tainted(pick("x", "y"), corev1.TaintEffect(pick("NoSchedule", "NoExecute", "PreferNoSchedule")))(n)
		}
		n.Spec.Unschedulable = r.IntN(8) == 0
		s.nodes = append(s.nodes, n)
	}
	for i := range classes {
		c := class(fmt.Sprintf("class-%04d", i), pick("runc", "runsc", "kata", "other"))
		if r.IntN(2) == 0 {
			selects(pick("kind", "zone"), pick("a", "b", ""))(c)
		}
		if r.IntN(2) == 0 {
			tolerates(pick("x", "y"))(c)
		}
		s.classes = append(s.classes, c)
	}
	return s
}

// oneByOne asks the library for each node.
func oneByOne(t *testing.T, nodes []*corev1.Node, c *nodev1.RuntimeClass) standing {
	t.Helper()
	matches, err := runtimeclass.Match(runtimeclass.Query{Class: c, Nodes: nodes})
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*corev1.Node{}
	for _, n := range nodes {
		byName[n.Name] = n
	}
	var out standing
	for _, m := range matches {
		n, causes := byName[m.Node], map[runtimeclass.Cause]bool{}
		for _, w := range m.Why {
			causes[w.Cause] = true
		}
		verdict, tried := n.Labels["handler.fairlead.run/"+c.Handler]
		switch {
		case causes[runtimeclass.CauseClass]:
		case causes[runtimeclass.CauseHandler] && tried && verdict != "true":
			out[failing]++
		case causes[runtimeclass.CauseHandler]:
			out[lacking]++
		case len(causes) > 0:
			out[closed]++
		case !tried && len(n.Status.RuntimeHandlers) == 0:
			out[untold]++
		default:
			out[open]++
		}
	}
	return out
}

// Nodes are looked at by kind, and give the same as each by itself.
func TestKindsOfNodes(t *testing.T) {
	for seed := range uint64(50) {
		s := fleet(rand.New(rand.NewPCG(seed, 1)), 60, 40)
		m := newMatcher(s.nodes, s.classes)
		known := policy.NewFleet(s.nodes)
		for _, c := range s.classes {
			want := oneByOne(t, s.nodes, c)
			got := m.of(c)
			if got != want {
				t.Fatalf("seed %d, class %+v: %v, and one by one %v", seed, c, got, want)
			}
			if nodes := known.Nodes(c); got.supporting() != nodes {
				t.Fatalf("seed %d, class %+v: %v, and admission knows of %d", seed, c, got, nodes)
			}
		}
		if len(m.kinds) == len(s.nodes) {
			t.Errorf("seed %d: every node is a kind of its own", seed)
		}
	}
}

// What is told does not grow with the cluster, and all replicas choose the same.
func TestCardinalityIsBounded(t *testing.T) {
	var s seen
	for i := range 5000 {
		s.classes = append(s.classes, class(fmt.Sprintf("class-%04d", i), fmt.Sprintf("handler-%03d", i%300)))
	}
	s.nodes = []*corev1.Node{node("1", lists("handler-299"), published("handler-298", "false"))}
	s.pods = map[group]int{}
	failed := map[failure]int{}
	for i := range 5000 {
		s.pods[group{class: fmt.Sprintf("class-%04d", i), phase: pending, verdict: cluster.Unfit}]++
		s.pods[group{class: fmt.Sprintf("class-%04d", i), phase: running}]++
		s.pods[group{class: fmt.Sprintf("class-%04d", i), phase: pending, node: "1"}]++
		s.pods[group{class: fmt.Sprintf("class-%04d", i), phase: corev1.PodUnknown}]++
		s.pods[group{class: fmt.Sprintf("gone-%04d", i), phase: running}]++
		for _, v := range []cluster.Verdict{cluster.Unasked, cluster.Gated, cluster.Full} {
			s.pods[group{class: fmt.Sprintf("class-%04d", i), phase: pending, verdict: v}]++
		}
		failed[failure{fmt.Sprintf("class-%04d", i), cluster.Unfit}]++
	}
	first := told(t, s, failed)
	if n := strings.Count(first, "\n"); n > 2500 {
		t.Errorf("%d lines", n)
	}
	for _, line := range []string{
		`class_pods{class="_other",phase="Pending"} 24500`, `class_pods{class="_missing",phase="Running"} 5000`, `class_pods{class="_other",phase="Unknown"} 4900`, `class_unscheduled_pods{class="_other",reason="unsupported"} 9768`,
		`handlers_missing 299`, `handler_nodes{runtime_handler="handler-298",state="fails"} 1`, `runtimeclasses{runtime_handler="_other",isolation="none"} 4151`, `runtimeclasses_without_nodes{used="true"} 4984`,
	} {
		if !strings.Contains(first, "\nfairlead_cluster_"+line+"\n") {
			t.Errorf("no %s", line)
		}
	}
	slices.Reverse(s.classes)
	second := told(t, s, failed)
	for line := range strings.Lines(second) {
		if !strings.Contains(line, "census_") && !strings.Contains(line, "failures_total") && !strings.Contains(first, line) {
			t.Fatalf("another order of the cache has %s", line)
		}
	}
	// A class with pods comes before those without.
	s.pods = map[group]int{{class: "class-4999", phase: running}: 1}
	if got := told(t, s, nil); !strings.Contains(got, `class_pods{class="class-4999",phase="Running"} 1`) || strings.Contains(got, `class="class-0099"`) {
		t.Error("the class with pods is not told of by name")
	}
}

// What is followed change by change is what a count of all has.
func TestTally(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	tally, pods := newTally(), map[string]*cluster.Pod{}
	want := map[failure]int{}
	for step := range 20_000 {
		key := fmt.Sprint(r.IntN(200))
		old := pods[key]
		var now *cluster.Pod
		if r.IntN(4) > 0 {
			now = &cluster.Pod{Name: key, UID: types.UID(fmt.Sprint("uid-", step))}
			if old != nil && r.IntN(8) > 0 {
				now.UID = old.UID
			}
			now.Class = []string{"", "a", "b"}[r.IntN(3)]
			switch r.IntN(3) {
			case 0:
				now.Verdict = cluster.Verdict(r.IntN(4))
			case 1:
				now.Phase, now.Node = pending, "n"
			default:
				now.Phase, now.Node = running, "n"
			}
		}
		if old == nil && now == nil {
			continue
		}
		if now != nil && now.Verdict.Failed() && (old == nil || old.UID != now.UID || !old.Verdict.Failed()) {
			want[failure{now.Class, now.Verdict}]++
		}
		tally.changed(key, old, now)
		delete(pods, key)
		if now != nil {
			pods[key] = now
		}
	}
	counted := map[group]int{}
	for _, p := range pods {
		g := group{class: p.Class, phase: pending, verdict: p.Verdict, node: p.Node}
		if p.Phase == running {
			g = group{class: p.Class, phase: running}
		}
		counted[g]++
	}
	got, failures := tally.take()
	if fmt.Sprint(got) != fmt.Sprint(counted) || len(got) < 10 {
		t.Errorf("followed %v\ncounted  %v", got, counted)
	}
	if fmt.Sprint(failures) != fmt.Sprint(want) {
		t.Errorf("failures %v, wanted %v", failures, want)
	}
	if _, again := tally.take(); len(again) != 0 {
		t.Errorf("taken twice: %v", again)
	}
}

// A census holds for 15 seconds, however often it is asked for.
func TestCensusIsNotTakenAtEachScrape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := cluster.NewCache(nil, cluster.Options{Only: []string{}})
		c := New(cache)
		var r telemetry.Registry
		c.Register(&r)
		line := func() string {
			text := written(t, &r)
			_, after, _ := strings.Cut(text, "fairlead_cluster_class_pods{class=\"_none\",phase=\"Running\"} ")
			n, _, _ := strings.Cut(after, "\n")
			_, after, _ = strings.Cut(text, "\nfairlead_cluster_census_age_seconds ")
			age, _, _ := strings.Cut(after, "\n")
			return n + " of " + age
		}
		if got := line(); got != "0 of 0" {
			t.Error(got)
		}
		c.tally.changed("", nil, &cluster.Pod{Phase: running, Node: "n"})
		time.Sleep(freshFor - time.Second)
		if got := line(); got != "0 of 14" {
			t.Error(got)
		}
		time.Sleep(time.Second)
		if got := line(); got != "1 of 0" {
			t.Error(got)
		}
	})
}

// Before the caches are full nothing is told, as zeros would be alarms.
func TestNothingIsToldTooEarly(t *testing.T) {
	var r telemetry.Registry
	New(cluster.NewCache(nil, cluster.Options{})).Register(&r)
	for line := range strings.Lines(written(t, &r)) {
		if !strings.HasPrefix(line, "#") {
			t.Error(line)
		}
	}
}

// The counter of a class keeps its name when other classes take the places.
func TestFailuresOnlyGrow(t *testing.T) {
	var r telemetry.Registry
	c := &Census{tally: newTally(), named: map[string]bool{}}
	c.Register(&r)
	next := func(s seen, failed map[failure]int) string { return c.tells(t, &r, s, failed) }
	s := seen{pods: map[group]int{}}
	for i := range 3 * mostClasses {
		s.classes = append(s.classes, class(fmt.Sprintf("class-%03d", i), "runc"))
	}
	late := failure{"class-299", cluster.Full}
	next(s, map[failure]int{late: 1})
	for i := range 2 * mostClasses {
		s.pods[group{class: fmt.Sprintf("class-%03d", i), phase: running}]++
	}
	got := next(s, map[failure]int{late: 1, {"class-150", cluster.Full}: 5})
	if !strings.Contains(got, `failures_total{class="class-299",reason="unsupported"} 2`) || !strings.Contains(got, `failures_total{class="_other",reason="unsupported"} 5`) {
		t.Error(got[strings.Index(got, "# HELP fairlead_cluster_class_scheduling"):])
	}
	if n := strings.Count(got, "\nfairlead_cluster_class_scheduling_failures_total{"); n > 512 {
		t.Errorf("%d series", n)
	}
}

// What a census takes where it is usual, and at its worst: every class with a
// selector of its own, and every node a kind of its own.
func BenchmarkCensus(b *testing.B) {
	run := func(s seen) func(b *testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				count(s, newIndex(s))
			}
		}
	}
	usual := fleet(rand.New(rand.NewPCG(3, 4)), 200, 5000)
	usual.pods = map[group]int{}
	for i := range 5000 {
		usual.pods[group{class: fmt.Sprintf("class-%04d", i), phase: running}]++
	}
	b.Run("usual", run(usual))
	for i, c := range usual.classes {
		selects("kubernetes.io/hostname", fmt.Sprint(i%200))(c)
		c.Scheduling.Tolerations = []corev1.Toleration{{Key: c.Name, Operator: corev1.TolerationOpExists}}
	}
	b.Run("worst", run(usual))
}
