package network

import (
	"context"
	"net/netip"

	"fairlead.run/internal/pod"
)

// Pods puts a Driver into the terms of pod records, for those who know of a
// pod's network only its addresses.
type Pods struct {
	Driver Driver
}

// Attach connects the pod of a record and returns its addresses.
func (p Pods) Attach(ctx context.Context, r *pod.Record) ([]netip.Addr, error) {
	res, err := p.Driver.Attach(ctx, RequestFor(r))
	return res.IPs, err
}

// Detach is Driver.Detach.
func (p Pods) Detach(ctx context.Context, id pod.ID) error { return p.Driver.Detach(ctx, id) }

// Check is Inspect.
func (p Pods) Check(ctx context.Context, r *pod.Record) error { return Inspect(ctx, p.Driver, r) }

// Status is Driver.Status.
func (p Pods) Status(ctx context.Context) error { return p.Driver.Status(ctx) }

// Reconcile is Driver.Reconcile.
func (p Pods) Reconcile(ctx context.Context, live func(pod.ID) bool) error {
	return p.Driver.Reconcile(ctx, live)
}

// RequestFor is what a pod's record asks of its network.
func RequestFor(r *pod.Record) Request {
	return Request{
		ID: r.ID, Metadata: r.Config.Metadata, Hostname: r.Config.Hostname,
		NetNS: r.Sandbox.NetNS, Ports: r.Config.Ports, DNS: r.Config.DNS,
		CgroupPath: r.Sandbox.Cgroup, Labels: r.Config.Labels, Annotations: r.Config.Annotations,
	}
}
