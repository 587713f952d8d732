package bridge

import (
	"context"
	"net/netip"
	"testing"

	"fairlead.run/internal/network/networktest"
	"fairlead.run/internal/pod"
)

// TestAuditFindsLeaks wants addresses and ports freed that are taken and that
// no entry of the ledger has, and no others.
func TestAuditFindsLeaks(t *testing.T) {
	networktest.NeedRoot(t)
	r := newRig(t, Config{})
	p := networktest.NewPod(t, "p")
	p.Req.Ports = []pod.PortMapping{{Protocol: "tcp", ContainerPort: 80, HostPort: 31891}}
	mine := r.attach(p).IPs[0]
	find := func() (out []pod.Held) {
		t.Helper()
		held, err := r.Held(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range held {
			if h.Kind == pod.KindAddress || h.Kind == pod.KindPort {
				out = append(out, h)
			}
		}
		return out
	}
	if got := find(); len(got) != 0 {
		t.Errorf("with a pod alone: %+v", got)
	}
	leak, err := r.Driver.pools[0].Take()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Driver.ports.Reserve("lost", "ns/lost", []pod.PortMapping{{Protocol: "udp", ContainerPort: 1, HostPort: 31892}}); err != nil {
		t.Fatal(err)
	}
	got := find()
	if len(got) != 2 || got[0].Name != leak.String() || got[1].Name != "31892/udp of pod lost" {
		t.Fatalf("found %+v, want address %s and port 31892", got, leak)
	}
	// What a pod has meanwhile is not freed, whoever asks.
	got = append(got, pod.Held{Kind: pod.KindAddress, Name: mine.String()})
	for _, h := range got {
		if err := r.Drop(context.Background(), h); err != nil {
			t.Errorf("%+v: %v", h, err)
		}
	}
	if left := find(); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
	if taken := r.Driver.pools[0].Taken(); len(taken) != 1 || taken[0] != mine {
		t.Errorf("taken are %v, want the pod's %v", taken, []netip.Addr{mine})
	}
}

// TestSharedAddressStays wants a second entry with a pod's address, as damage
// or a copy makes it, to go without the address.
func TestSharedAddressStays(t *testing.T) {
	networktest.NeedRoot(t)
	r := newRig(t, Config{})
	mine := r.attach(networktest.NewPod(t, "p")).IPs[0]
	copied, ok := r.ledger.Get(r.entries()[0].ID)
	if !ok {
		t.Fatal("the pod has no entry")
	}
	copied.ID, copied.Request.ID = "copy", "copy"
	if err := r.ledger.Record(copied); err != nil {
		t.Fatal(err)
	}
	if err := r.Detach(t.Context(), "copy"); err != nil {
		t.Fatal(err)
	}
	if err := r.ReleaseNow(t.Context(), "copy"); err != nil {
		t.Fatal(err)
	}
	if _, there := r.ledger.Get("copy"); there {
		t.Error("the copy is still in the ledger")
	}
	if taken := r.Driver.pools[0].Taken(); len(taken) != 1 || taken[0] != mine {
		t.Errorf("taken are %v, want %v", taken, mine)
	}
}
