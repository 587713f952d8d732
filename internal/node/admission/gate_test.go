package admission

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/inbox"
	"fairlead.run/internal/node/ledger"
	"fairlead.run/internal/node/shown"
)

// cores has room for so many of them. Pods of class "critical" displace the one that came first,
// and a pod that does not fit is refused for good or not.
type cores struct {
	most  int64
	again bool
	asked []string // the pods that run, at each question
}

func (c *cores) left(running []*corev1.Pod) int64 {
	names, left := []string{}, c.most
	for _, p := range running {
		names, left = append(names, p.Name), left-p.Spec.Containers[0].Resources.Requests.Cpu().Value()
	}
	c.asked = append(c.asked, strings.Join(names, " "))
	return left
}

func (c *cores) Admit(p *corev1.Pod, running, leaving []*corev1.Pod) (Displaced, error) {
	switch left := c.left(running); {
	case p.Spec.PriorityClassName == "unknown":
		return Displaced{}, errors.New("nobody knows")
	case p.Spec.Containers[0].Resources.Requests.Cpu().Value() <= left:
		return Displaced{Behind: leaving}, nil
	case p.Spec.PriorityClassName == "critical":
		return Displaced{Pods: running[:1], Why: Refusal{Reason: "Preempting", Message: "made room"}}, nil
	}
	return Displaced{}, &Refusal{Reason: "OutOfcpu", Message: "none is left", Again: c.again}
}

func (c *cores) Resize(p *corev1.Pod, others []*corev1.Pod) (reason, message string) {
	if p.Spec.Containers[0].Resources.Requests.Cpu().Value() > c.left(others) {
		return corev1.PodReasonDeferred, "none is left"
	}
	return "", ""
}

func pod(name, cpus string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uuid.NewUUID()}}
	p.Spec.Containers = []corev1.Container{{Name: "x", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus)}}}}
	return p
}

// guest comes to the gate, and asks.
func guest(g *Gate, p *corev1.Pod) (*Guest, *inbox.Inbox) {
	in := inbox.New(p)
	out := g.Guest(p.UID, in, &shown.Shown{})
	out.Ask()
	return out, in
}

func answer(p *Guest) string {
	a := p.Answer()
	out := "in"
	if a.Refusal != nil {
		out = a.Refusal.Reason + ": " + a.Refusal.Message
	}
	if a.News {
		out += ", news"
	}
	if a.Waits {
		out += ", waits"
	}
	return out
}

func TestAsk(t *testing.T) {
	ended, deleted := pod("ended", "1"), pod("deleted", "1")
	ended.Status.Phase, deleted.DeletionTimestamp = corev1.PodSucceeded, &metav1.Time{Time: time.Now()}
	unknown := pod("unknown", "1")
	unknown.Spec.PriorityClassName = "unknown"
	for _, tt := range []struct {
		pod      *corev1.Pod
		record   *ledger.Record
		want     string
		admitted bool
	}{
		{pod("fits", "1"), nil, "in", true},
		{pod("large", "3"), nil, "OutOfcpu: none is left, news", false},
		{unknown, nil, "UnexpectedAdmissionError: nobody knows, news", false},
		{ended, nil, "in", false}, // which counts for nobody
		{deleted, nil, "in", false},
		{pod("found", "3"), &ledger.Record{Allocated: &capacity.Allocation{}}, "in", true},
		{pod("over", "3"), &ledger.Record{Ended: &corev1.PodStatus{}}, "in", false},
	} {
		book := ledger.Ledger{Root: t.TempDir(), Agent: "test"}
		if tt.record != nil {
			if err := book.Write(tt.pod.UID, *tt.record); err != nil {
				t.Fatal(err)
			}
		}
		p, _ := guest(New(&cores{most: 2}, book), tt.pod)
		if got := answer(p); got != tt.want || p.Admitted() != tt.admitted {
			t.Errorf("%s: %q, admitted: %v; want %q, %v", tt.pod.Name, got, p.Admitted(), tt.want, tt.admitted)
		}
		if again := answer(p); strings.Contains(again, "news") {
			t.Errorf("%s: it is told twice", tt.pod.Name)
		}
	}
	if p, _ := guest(New(nil, ledger.Ledger{}), pod("any", "99")); !p.Admitted() {
		t.Error("a node without a Room has none")
	}
}

// TestRetry asks anew for a pod that may be let in later, once another one has ended, and for
// no other.
func TestRetry(t *testing.T) {
	for again, want := range map[bool]string{true: "in", false: "OutOfcpu: none is left"} {
		room := &cores{most: 1, again: again}
		g := New(room, ledger.Ledger{})
		first, _ := guest(g, pod("first", "1"))
		second, in := guest(g, pod("second", "1"))
		answer(second)
		if second.Retry(); answer(second) != "OutOfcpu: none is left" {
			t.Error("there is room beside the first one, or its refusal is told again")
		}
		for range 2 {
			first.End()
		}
		select {
		case <-first.Over():
		default:
			t.Error("it is not over")
		}
		second.Retry()
		if got := answer(second); got != want {
			t.Errorf("again %v: %q, want %q", again, got, want)
		}
		if woken := len(in.Woken()) > 0; woken != again {
			t.Errorf("again %v: its worker is woken: %v", again, woken)
		}
	}
}

// TestDisplaced ends a pod for one that is more important, which waits for that.
func TestDisplaced(t *testing.T) {
	g := New(&cores{most: 1}, ledger.Ledger{})
	lesser, in := guest(g, pod("lesser", "1"))
	p := pod("critical", "1")
	p.Spec.PriorityClassName = "critical"
	critical, _ := guest(g, p)
	if got := answer(critical); got != "in, waits" {
		t.Error(got)
	}
	if _, l := in.Open(t.Context()); l.Ending == nil || l.Ending.Refusal.Reason != "Preempting" {
		t.Errorf("the other one is not ended: %+v", l.Ending)
	}
	in.Close()
	lesser.End()
	if got := answer(critical); got != "in" {
		t.Error(got)
	}
}

// TestLeaving has a pod wait for one that nobody wants any more, and none for one of which
// nothing runs: both are gone for who has sent it.
func TestLeaving(t *testing.T) {
	g := New(&cores{most: 1}, ledger.Ledger{})
	first, _ := guest(g, pod("first", "1"))
	first.Leave()
	second, in := guest(g, pod("second", "1"))
	if got := answer(second); got != "in, waits" {
		t.Error(got)
	}
	if !first.Rest() || first.Rest() {
		t.Error("it does not know whether it rests already")
	}
	if second.Retry(); len(in.Woken()) == 0 {
		t.Error("its worker is not woken")
	}
	if got := answer(second); got != "in" {
		t.Error(got)
	}
	second.Rest()
	third, _ := guest(g, pod("third", "1"))
	if got := answer(third); got != "in" {
		t.Errorf("beside one that rests: %s", got)
	}
}

// TestResize gives room to those that wait for it first, and to the more important ones among
// them.
func TestResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := &cores{most: 4}
		g := New(room, ledger.Ledger{})
		guests, asks := map[string]*Guest{}, map[string]*corev1.Pod{}
		for i, name := range []string{"a", "b", "c"} {
			p := pod(name, "1")
			p.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Duration(i) * time.Second))
			guests[name], _ = guest(g, p)
			asks[name] = pod(name, "3")
			asks[name].Spec.Priority = new(int32(map[string]int{"b": 10}[name]))
		}
		for _, name := range []string{"a", "b"} {
			if reason, _ := guests[name].Resize(asks[name]); reason != corev1.PodReasonDeferred {
				t.Errorf("%s: %q", name, reason)
			}
			time.Sleep(time.Second)
		}
		if last := room.asked[len(room.asked)-1]; last != "a c" {
			t.Errorf("the others of b are %q", last)
		}
		room.most = 5
		if reason, _ := guests["c"].Resize(asks["c"]); reason != corev1.PodReasonDeferred {
			t.Error("c takes the room that b has waited for")
		}
		var woken []string
		for _, name := range slices.Sorted(maps.Keys(guests)) {
			if len(guests[name].inbox.Woken()) > 0 {
				woken = append(woken, name)
			}
		}
		if got := fmt.Sprint(woken); got != "[b]" {
			t.Errorf("there is room for %s by now, want [b]", got)
		}
		if reason, _ := guests["b"].Resize(asks["b"]); reason != "" {
			t.Errorf("b: %q", reason)
		}
		guests["a"].Keep() // it has what it had
		room.most = 7
		if reason, _ := guests["c"].Resize(asks["c"]); reason != "" {
			t.Errorf("c: %q", reason)
		}
	})
}
