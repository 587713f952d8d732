package network

import (
	"context"
	"errors"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// Inspect says whether the network of a running pod is in order; its errors are
// those of Driver.Check. Whether the pod has its interface is seen without the
// driver, which may not be able to tell.
//
// A pod with a kernel of its own has its addresses in there, so that every driver
// would miss them on its interface: of such a pod, only the interface counts.
func Inspect(ctx context.Context, d Driver, r *pod.Record) error {
	if _, err := AddressesInside(r.Sandbox.NetNS); err != nil {
		return err
	}
	if r.Sandbox.OwnKernel {
		return nil
	}
	return d.Check(ctx, r.ID)
}

var _ pod.Examiner = (*Switch)(nil)

// Examine inspects a pod of the optional network. Of the built-in one, Held and
// Wants say everything thing by thing.
func (s *Switch) Examine(ctx context.Context, r *pod.Record) ([]pod.Held, error) {
	e, ok := s.ledger.Get(r.ID)
	if !ok || e.State != Attached || e.Driver != s.optional.Name() {
		return nil, nil // Held and Wants say that
	}
	if _, err := AddressesInside(r.Sandbox.NetNS); err != nil && !errors.Is(err, errdefs.ErrPrecondition) {
		return nil, nil // others say why its namespace cannot be entered
	}
	err := Inspect(ctx, s, r)
	if !errors.Is(err, errdefs.ErrPrecondition) {
		return nil, err
	}
	return []pod.Held{{Kind: pod.KindAttachment, Name: s.ledger.path(r.ID), Owner: string(r.ID), Fault: err.Error()}}, nil
}
