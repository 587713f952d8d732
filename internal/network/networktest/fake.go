package networktest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/network"
	"fairlead.run/internal/pod"
)

// Fake is a driver that keeps the contract and touches nothing: for tests of
// those who use a driver. Its exported fields may be set before use.
type Fake struct {
	FakeName string // default "fake"
	// Fail is asked before each operation ("attach", "detach", "status") and its
	// error returned. It may wait.
	Fail func(ctx context.Context, op string, id pod.ID) error

	ledger *network.Ledger
	mu     sync.Mutex
	next   netip.Addr
	used   map[netip.Addr]pod.ID
}

var _ network.Driver = (*Fake)(nil)

// NewFake makes a fake over a ledger.
func NewFake(ledger *network.Ledger) *Fake {
	f := &Fake{ledger: ledger, next: netip.MustParseAddr("203.0.113.1"), used: map[netip.Addr]pod.ID{}}
	for _, e := range ledger.List(f.Name()) {
		for _, ip := range e.Result.IPs {
			f.used[ip] = e.ID
		}
	}
	return f
}

// Name returns FakeName or "fake".
func (f *Fake) Name() string {
	if f.FakeName == "" {
		return "fake"
	}
	return f.FakeName
}

func (f *Fake) fail(ctx context.Context, op string, id pod.ID) error {
	if f.Fail == nil {
		return nil
	}
	return f.Fail(ctx, op, id)
}

// Attach gives the next free address of 203.0.113.0/24.
func (f *Fake) Attach(ctx context.Context, req network.Request) (network.Result, error) {
	if err := req.Validate(); err != nil {
		return network.Result{}, err
	}
	unlock, err := f.ledger.Lock(ctx, req.ID)
	if err != nil {
		return network.Result{}, err
	}
	defer unlock()
	if err := f.fail(ctx, "attach", req.ID); err != nil {
		return network.Result{}, err
	}
	if e, ok := f.ledger.Get(req.ID); ok && e.Request.NetNS == req.NetNS {
		f.ledger.Adopt(req.ID)
		return e.Result, nil
	}
	ip, err := f.take(req.ID)
	if err != nil {
		return network.Result{}, fmt.Errorf("attach pod %s: %w", req.ID, err)
	}
	res := network.Result{IPs: []netip.Addr{ip}, Interface: network.InterfaceName}
	e := network.Entry{ID: req.ID, Driver: f.Name(), State: network.Attached, Request: req, Result: res}
	return res, f.ledger.Record(e)
}

func (f *Fake) take(id pod.ID) (netip.Addr, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range 254 {
		ip := f.next
		if f.next = ip.Next(); f.next.As4()[3] == 255 {
			f.next = netip.MustParseAddr("203.0.113.1")
		}
		if _, busy := f.used[ip]; !busy {
			f.used[ip] = id
			return ip, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("all addresses are in use: %w", errdefs.ErrExhausted)
}

// Detach frees the address.
func (f *Fake) Detach(ctx context.Context, id pod.ID) error {
	unlock, err := f.ledger.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if err := f.fail(ctx, "detach", id); err != nil {
		return err
	}
	f.mu.Lock()
	for ip, owner := range f.used {
		if owner == id {
			delete(f.used, ip)
		}
	}
	f.mu.Unlock()
	return f.ledger.Forget(id)
}

// Check finds the pod in the ledger.
func (f *Fake) Check(_ context.Context, id pod.ID) error {
	if _, ok := f.ledger.Get(id); !ok {
		return fmt.Errorf("check network of pod %s: it is not attached: %w", id, errdefs.ErrNotFound)
	}
	return nil
}

// Status is what Fail says.
func (f *Fake) Status(ctx context.Context) error { return f.fail(ctx, "status", "") }

// Reconcile detaches what nobody owns.
func (f *Fake) Reconcile(ctx context.Context, live func(pod.ID) bool) error {
	var errs []error
	for _, e := range f.ledger.List(f.Name()) {
		if !live(e.ID) && f.ledger.Inherited(e.ID) {
			errs = append(errs, f.Detach(ctx, e.ID))
		}
	}
	return errors.Join(errs...)
}

// Run waits for the end of ctx.
func (f *Fake) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
