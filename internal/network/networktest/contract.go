package networktest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"testing"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/network"
	"fairlead.run/internal/pod"
)

// Subject is a driver to be tried.
type Subject struct {
	// New makes the driver over a ledger. It is called again with the same
	// ledger directory to stand for a new process; what the driver keeps beside
	// the ledger has to stay the same within one t.
	New func(t *testing.T, ledger *network.Ledger) network.Driver
	// What the driver can do; a fake carries no packets.
	Traffic, IPv6, HostPorts, LoopbackHostPorts, PortConflicts bool
}

// rig is one test's driver and how to replace it.
type rig struct {
	network.Driver
	t      *testing.T
	s      Subject
	dir    string
	ledger *network.Ledger
	stop   func()
}

func newRig(t *testing.T, s Subject) *rig {
	r := &rig{t: t, s: s, dir: t.TempDir()}
	r.restart()
	return r
}

// restart replaces the driver by one that knows the ledger only.
func (r *rig) restart() {
	r.t.Helper()
	if r.stop != nil {
		r.stop()
	}
	ledger, err := network.OpenLedger(network.LedgerConfig{Dir: r.dir})
	if err != nil {
		r.t.Fatal(err)
	}
	r.ledger = ledger
	r.Driver = r.s.New(r.t, ledger)
	r.stop = Start(r.t, r.Run)
}

func (r *rig) attach(p *Pod) network.Result {
	r.t.Helper()
	res, err := r.Attach(context.Background(), p.Req)
	if err != nil {
		r.t.Fatalf("Attach: %v", err)
	}
	return res
}

func (r *rig) detach(p *Pod) {
	r.t.Helper()
	if err := r.Detach(context.Background(), p.Req.ID); err != nil {
		r.t.Fatalf("Detach: %v", err)
	}
	p.Drop()
}

func (r *rig) released(p *Pod) {
	r.t.Helper()
	Eventually(r.t, "the ledger to forget the pod", func() bool {
		_, ok := r.ledger.Get(p.Req.ID)
		return !ok
	})
}

// Run tries everything that the contract of network.Driver promises.
func Run(t *testing.T, s Subject) {
	NeedRoot(t)
	for name, test := range map[string]func(*testing.T, Subject){
		"attach check detach":     testLife,
		"attach is idempotent":    testIdempotent,
		"another process goes on": testRestart,
		"interrupted attach":      testInterrupted,
		"reconcile":               testReconcile,
		"bad requests":            testBadRequests,
		"parallel":                testParallel,
		"failed attach":           testFailedAttach,
	} {
		t.Run(name, func(t *testing.T) { test(t, s) })
	}
	if s.Traffic {
		t.Run("pods reach each other", func(t *testing.T) { testReach(t, s) })
		t.Run("pods reach the world", func(t *testing.T) { testWorld(t, s) })
	}
	if s.HostPorts {
		t.Run("host ports", func(t *testing.T) { testHostPorts(t, s) })
		t.Run("host port of a restarted daemon", func(t *testing.T) { testHostPortRestart(t, s) })
	}
	if s.PortConflicts {
		t.Run("host port conflict", func(t *testing.T) { testPortConflict(t, s) })
	}
}

func testLife(t *testing.T, s Subject) {
	r, p := newRig(t, s), NewPod(t, "life")
	if err := r.Status(context.Background()); err != nil {
		t.Errorf("Status before the first pod: %v", err)
	}
	res := r.attach(p)
	if len(res.IPs) == 0 || res.Interface != network.InterfaceName {
		t.Fatalf("result %+v lacks addresses or the interface", res)
	}
	if !res.IPs[0].Is4() {
		t.Errorf("primary address %s is not IPv4", res.IPs[0])
	}
	if s.IPv6 && (len(res.IPs) < 2 || !res.IPs[1].Is6()) {
		t.Errorf("addresses %v lack IPv6", res.IPs)
	}
	if err := r.Check(context.Background(), p.Req.ID); err != nil {
		t.Errorf("Check: %v", err)
	}
	if err := r.Status(context.Background()); err != nil {
		t.Errorf("Status: %v", err)
	}
	if s.Traffic {
		p.Serve(t, "127.0.0.1:80", "self")
		if name, _, err := p.Ask("127.0.0.1:80"); name != "self" {
			t.Errorf("loopback in the pod: %v", err)
		}
		c, err := network.DialInNetNS(context.Background(), p.Path, 80)
		if err != nil {
			t.Fatalf("DialInNetNS: %v", err)
		}
		if name, _, err := hear(c); name != "self" {
			t.Errorf("DialInNetNS reached %q: %v", name, err)
		}
	}
	r.detach(p)
	r.released(p)
	if err := r.Detach(context.Background(), p.Req.ID); err != nil {
		t.Errorf("second Detach: %v", err)
	}
	if err := r.Detach(context.Background(), pod.NewID()); err != nil {
		t.Errorf("Detach of an unknown pod: %v", err)
	}
	if err := r.Check(context.Background(), p.Req.ID); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("Check after Detach: %v, want not found", err)
	}
}

func testIdempotent(t *testing.T, s Subject) {
	r, p := newRig(t, s), NewPod(t, "twice")
	first, second := r.attach(p), r.attach(p)
	if fmt.Sprint(first) != fmt.Sprint(second) {
		t.Errorf("second Attach gave %v, the first %v", second, first)
	}
	r.detach(p)
	r.released(p)
}

func testRestart(t *testing.T, s Subject) {
	r, p, q := newRig(t, s), NewPod(t, "p"), NewPod(t, "q")
	before := r.attach(p)
	r.restart()
	if other := r.attach(q); other.IPs[0] == before.IPs[0] {
		t.Errorf("a new process gave out address %s again", other.IPs[0])
	}
	if err := r.Check(context.Background(), p.Req.ID); err != nil {
		t.Errorf("Check by a new process: %v", err)
	}
	if after := r.attach(p); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("Attach by a new process gave %v, before it was %v", after, before)
	}
	r.restart()
	r.detach(p)
	r.detach(q)
	r.released(p)
	r.released(q)
}

// testInterrupted stands for a crash in the middle of Attach: an entry, but not
// all that it says; the caller comes again with a new namespace.
func testInterrupted(t *testing.T, s Subject) {
	r, p := newRig(t, s), NewPod(t, "p")
	r.attach(p)
	r.restart()
	again := NewPod(t, "p")
	again.Req.ID = p.Req.ID
	res := r.attach(again)
	p.Drop()
	if err := r.Check(context.Background(), p.Req.ID); err != nil {
		t.Errorf("Check: %v", err)
	}
	if s.Traffic {
		again.Serve(t, net.JoinHostPort(res.IPs[0].String(), "80"), "again")
	}
	r.detach(again)
	r.released(again)
}

func testReconcile(t *testing.T, s Subject) {
	r, kept, lost := newRig(t, s), NewPod(t, "kept"), NewPod(t, "lost")
	r.attach(kept)
	r.attach(lost)
	r.restart()
	fresh := NewPod(t, "fresh")
	r.attach(fresh)
	lost.Drop()
	live := func(id pod.ID) bool { return id == kept.Req.ID }
	if err := r.Reconcile(context.Background(), live); err != nil {
		t.Fatalf("Reconcile: %v", err)
	}
	r.released(lost)
	for _, p := range []*Pod{kept, fresh} {
		if err := r.Check(context.Background(), p.Req.ID); err != nil {
			t.Errorf("Reconcile broke pod %s: %v", p.Req.Metadata.Name, err)
		}
		r.detach(p)
		r.released(p)
	}
}

func testBadRequests(t *testing.T, s Subject) {
	r := newRig(t, s)
	for name, spoil := range map[string]func(*network.Request){
		"no id":          func(q *network.Request) { q.ID = "" },
		"id is a path":   func(q *network.Request) { q.ID = "../../etc/passwd" },
		"relative netns": func(q *network.Request) { q.NetNS = "net" },
		"protocol": func(q *network.Request) {
			q.Ports = []pod.PortMapping{{Protocol: "TCP", HostPort: 1, ContainerPort: 1}}
		},
		"container port": func(q *network.Request) { q.Ports = []pod.PortMapping{{Protocol: "tcp", HostPort: 1}} },
		"host address": func(q *network.Request) {
			q.Ports = []pod.PortMapping{{Protocol: "tcp", HostPort: 1, ContainerPort: 1, HostIP: "localhost"}}
		},
	} {
		p := NewPod(t, "bad")
		spoil(&p.Req)
		if _, err := r.Attach(context.Background(), p.Req); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s: Attach gave %v, want an invalid argument", name, err)
		}
	}
}

// testFailedAttach wants no trace of a pod whose namespace does not exist.
func testFailedAttach(t *testing.T, s Subject) {
	if !s.Traffic {
		t.Skip("a fake does not look at the namespace")
	}
	r, p := newRig(t, s), NewPod(t, "gone")
	p.Drop()
	if _, err := r.Attach(context.Background(), p.Req); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("Attach without a namespace gave %v, want not found", err)
	}
	if e, ok := r.ledger.Get(p.Req.ID); ok {
		t.Errorf("the ledger still has %+v", e)
	}
}

func testParallel(t *testing.T, s Subject) {
	const n = 50
	r := newRig(t, s)
	pods := make([]*Pod, n)
	for i := range pods {
		pods[i] = NewPod(t, fmt.Sprintf("p%d", i))
	}
	results := make([]network.Result, n)
	errs := make([]error, n)
	each := func(f func(i int)) {
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() { f(i) })
		}
		wg.Wait()
	}
	each(func(i int) { results[i], errs[i] = r.Attach(context.Background(), pods[i].Req) })
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	owner := map[netip.Addr]int{}
	for i, res := range results {
		for _, ip := range res.IPs {
			if j, taken := owner[ip]; taken {
				t.Errorf("pods %d and %d both have %s", i, j, ip)
			}
			owner[ip] = i
		}
	}
	each(func(i int) { errs[i] = r.Detach(context.Background(), pods[i].Req.ID); pods[i].Drop() })
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		r.released(p)
	}
}

func testReach(t *testing.T, s Subject) {
	r, a, b := newRig(t, s), NewPod(t, "a"), NewPod(t, "b")
	from, to := r.attach(a), r.attach(b)
	for i, ip := range to.IPs {
		addr := net.JoinHostPort(ip.String(), "8080")
		b.Serve(t, addr, "b")
		name, seen, err := a.Ask(addr)
		if err != nil || name != "b" {
			t.Fatalf("a cannot reach b at %s: %v", addr, err)
		}
		if seen != from.IPs[i] {
			t.Errorf("b saw %s, want a's own address %s", seen, from.IPs[i])
		}
		if name, _, err := AskHere(addr); name != "b" {
			t.Errorf("the node cannot reach b at %s: %v", addr, err)
		}
	}
	r.detach(a)
	r.detach(b)
}

func testWorld(t *testing.T, s Subject) {
	world := Outside(t)
	r, p := newRig(t, s), NewPod(t, "p")
	res := r.attach(p)
	for i, ip := range []string{OutsideIPv4, OutsideIPv6} {
		if i >= len(res.IPs) {
			break
		}
		addr := net.JoinHostPort(ip, "8080")
		world.Serve(t, addr, "world")
		name, seen, err := p.Ask(addr)
		if err != nil || name != "world" {
			t.Fatalf("the pod cannot reach %s: %v", addr, err)
		}
		if want := []string{NodeIPv4, NodeIPv6}[i]; seen.String() != want {
			t.Errorf("the world saw %s, want the node's %s", seen, want)
		}
	}
	r.detach(p)
}

func testHostPorts(t *testing.T, s Subject) {
	world := Outside(t)
	r := newRig(t, s)
	p := NewPod(t, "server",
		pod.PortMapping{Protocol: "tcp", HostPort: 18080, ContainerPort: 80},
		pod.PortMapping{Protocol: "udp", HostPort: 18053, ContainerPort: 53},
		pod.PortMapping{Protocol: "tcp", HostPort: 18081, ContainerPort: 80, HostIP: NodeIPv4},
	)
	other := NewPod(t, "other")
	res := r.attach(p)
	r.attach(other)
	p.Serve(t, ":80", "server")
	p.ServeUDP(t, net.JoinHostPort(res.IPs[0].String(), "53"), "udp server")
	askers := map[string]func(string) (string, netip.Addr, error){
		"world": world.Ask, "node": AskHere, "other pod": other.Ask, "pod itself": p.Ask,
	}
	nodes := []string{NodeIPv4}
	if len(res.IPs) > 1 {
		nodes = append(nodes, NodeIPv6)
	}
	for who, ask := range askers {
		for _, node := range nodes {
			addr := net.JoinHostPort(node, "18080")
			if name, _, err := ask(addr); name != "server" {
				t.Errorf("%s cannot reach %s: %v", who, addr, err)
			}
		}
		if name, _, err := ask(NodeIPv4 + ":18081"); name != "server" {
			t.Errorf("%s cannot reach the port of %s: %v", who, NodeIPv4, err)
		}
	}
	if answer, err := world.AskUDP(NodeIPv4 + ":18053"); answer != "udp server" {
		t.Errorf("world cannot reach the UDP port: %v", err)
	}
	if s.LoopbackHostPorts {
		if name, _, err := AskHere("127.0.0.1:18080"); name != "server" {
			t.Errorf("node cannot reach the port on its loopback address: %v", err)
		}
	}
	if _, seen, _ := world.Ask(NodeIPv4 + ":18080"); seen.String() != OutsideIPv4 {
		t.Errorf("the server saw %s, want the caller's own address %s", seen, OutsideIPv4)
	}
	r.detach(p)
	r.detach(other)
	r.released(p)
	if name, _, err := world.Ask(NodeIPv4 + ":18080"); err == nil {
		t.Errorf("after Detach, %q answers on the host port", name)
	}
	successor := NewPod(t, "successor", p.Req.Ports...)
	r.attach(successor)
	successor.Serve(t, ":80", "successor")
	if name, _, err := world.Ask(NodeIPv4 + ":18080"); name != "successor" {
		t.Errorf("the next pod with that port cannot be reached: %v", err)
	}
	r.detach(successor)
	r.released(successor)
}

func testHostPortRestart(t *testing.T, s Subject) {
	world := Outside(t)
	r := newRig(t, s)
	p := NewPod(t, "server", pod.PortMapping{Protocol: "tcp", HostPort: 18080, ContainerPort: 80})
	r.attach(p)
	p.Serve(t, ":80", "server")
	for range 2 {
		if name, _, err := world.Ask(NodeIPv4 + ":18080"); name != "server" {
			t.Fatalf("world cannot reach the host port: %v", err)
		}
		r.restart()
		q := NewPod(t, "another")
		r.attach(q) // makes the new process look at the host
		r.detach(q)
		r.released(q)
	}
	r.detach(p)
	r.released(p)
	if name, _, err := world.Ask(NodeIPv4 + ":18080"); err == nil {
		t.Errorf("after Detach by another process, %q answers on the host port", name)
	}
}

func testPortConflict(t *testing.T, s Subject) {
	ctx := context.Background()
	mapping := func(port uint16, host string) pod.PortMapping {
		return pod.PortMapping{Protocol: "tcp", HostPort: port, ContainerPort: 80, HostIP: host}
	}
	r := newRig(t, s)
	holder := NewPod(t, "holder", mapping(18080, ""))
	r.attach(holder)
	r.restart()
	rival := NewPod(t, "rival", mapping(18079, ""), mapping(18080, "127.0.0.1"))
	_, err := r.Attach(ctx, rival.Req)
	if !errors.Is(err, errdefs.ErrAlreadyExists) {
		t.Fatalf("Attach with a port in use gave %v, want already exists", err)
	}
	for _, want := range []string{strconv.Itoa(18080), "default/holder", holder.Req.ID.Short()} {
		if !contains(err, want) {
			t.Errorf("error %q does not name %s", err, want)
		}
	}
	if _, ok := r.ledger.Get(rival.Req.ID); ok {
		t.Error("the ledger has the refused pod")
	}
	r.detach(holder)
	if _, err := r.Attach(ctx, rival.Req); err != nil {
		t.Errorf("Attach after the holder was detached: %v", err)
	}
	r.detach(rival)
	r.released(rival)
	r.released(holder)
}
