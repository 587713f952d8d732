package network

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// Optional is a Driver that is used only where the administrator configured it.
type Optional interface {
	Driver
	// Configured says whether a configuration exists, working or not.
	Configured() bool
}

// Switch picks the driver for each pod: the optional one where it is
// configured, the built-in one elsewhere. A pod stays with the driver that
// attached it, whatever the configuration says later.
//
// A configuration that exists but does not work makes the node not ready; it
// never falls back to the built-in network, on which the cluster's other nodes
// could not reach the pod.
type Switch struct {
	ledger   *Ledger
	builtin  Driver
	optional Optional
}

var _ Driver = (*Switch)(nil)

// NewSwitch makes a switch between two drivers that use the ledger.
func NewSwitch(ledger *Ledger, builtin Driver, optional Optional) *Switch {
	return &Switch{ledger: ledger, builtin: builtin, optional: optional}
}

// Name is for logs; no ledger entry has it.
func (s *Switch) Name() string { return "switch" }

// Current is the driver that a new pod would get.
func (s *Switch) Current() Driver {
	if s.optional.Configured() {
		return s.optional
	}
	return s.builtin
}

func (s *Switch) drivers() []Driver { return []Driver{s.optional, s.builtin} }

// owner finds the driver that the ledger names. ok is false without an entry.
func (s *Switch) owner(id pod.ID) (d Driver, ok bool, err error) {
	e, ok := s.ledger.Get(id)
	if !ok {
		return nil, false, nil
	}
	for _, d := range s.drivers() {
		if d.Name() == e.Driver {
			return d, true, nil
		}
	}
	if e.State == Damaged {
		return nil, true, nil
	}
	return nil, true, fmt.Errorf("network attachment of pod %s belongs to driver %q, which this build does not have: %w", id, e.Driver, errdefs.ErrUnimplemented)
}

// Attach connects the pod by the current driver, or by the one that has it.
func (s *Switch) Attach(ctx context.Context, req Request) (Result, error) {
	d, ok, err := s.owner(req.ID)
	if err != nil {
		return Result{}, err
	}
	if ok && d == nil { // damaged: release what can be found, then start anew
		if err := s.Detach(ctx, req.ID); err != nil {
			return Result{}, err
		}
	}
	if d == nil {
		d = s.Current()
	}
	return d.Attach(ctx, req)
}

// Detach releases the pod by the driver that attached it. For a damaged entry
// each driver looks for traces of the pod.
func (s *Switch) Detach(ctx context.Context, id pod.ID) error {
	d, ok, err := s.owner(id)
	switch {
	case err != nil:
		return err
	case !ok:
		return nil
	case d != nil:
		return d.Detach(ctx, id)
	}
	for _, d := range s.drivers() {
		err = errors.Join(err, d.Detach(ctx, id))
	}
	if err != nil {
		return err
	}
	return s.ledger.Forget(id)
}

// Check asks the driver that has the pod.
func (s *Switch) Check(ctx context.Context, id pod.ID) error {
	d, ok, err := s.owner(id)
	if err != nil {
		return err
	}
	if !ok || d == nil {
		return fmt.Errorf("check network of pod %s: it is not attached: %w", id, errdefs.ErrNotFound)
	}
	return d.Check(ctx, id)
}

// Status is that of the driver that a new pod would get.
func (s *Switch) Status(ctx context.Context) error { return s.Current().Status(ctx) }

// Reconcile lets each driver release what nobody owns, then drops damaged
// entries of which nothing was found.
func (s *Switch) Reconcile(ctx context.Context, live func(pod.ID) bool) error {
	var errs []error
	for _, d := range s.drivers() {
		if err := d.Reconcile(ctx, live); err != nil {
			errs = append(errs, err)
		}
	}
	for _, e := range s.ledger.List("") {
		if !live(e.ID) && s.ledger.Inherited(e.ID) {
			errs = append(errs, s.Detach(ctx, e.ID))
		}
	}
	return errors.Join(errs...)
}

// Run does the background work of both drivers and of the ledger.
func (s *Switch) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.ledger.Run(ctx) })
	for _, d := range s.drivers() {
		g.Go(func() error { return d.Run(ctx) })
	}
	return g.Wait()
}

// Notes are those of the current driver.
func (s *Switch) Notes() []string {
	if d, ok := s.Current().(Describer); ok {
		return d.Notes()
	}
	return nil
}

// Purge removes what the drivers share on the host, if no pod is attached.
func (s *Switch) Purge(ctx context.Context) error {
	var errs []error
	for _, d := range s.drivers() {
		if p, ok := d.(Purger); ok {
			errs = append(errs, p.Purge(ctx))
		}
	}
	return errors.Join(errs...)
}
