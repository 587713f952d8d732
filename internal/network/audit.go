package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// Releaser is a Driver that frees what a pod had some time after Detach.
type Releaser interface {
	// Releasing says whether the driver is about to free what the pod had.
	Releasing(id pod.ID) bool
	// ReleaseNow frees it at once.
	ReleaseNow(ctx context.Context, id pod.ID) error
}

// Reviver is a Driver that can make the ledger's entry of a pod again, from
// what is on the host.
type Reviver interface {
	// Revive records the pod again. Where the pod is not of this driver, ok is
	// false.
	Revive(ctx context.Context, r *pod.Record) (ok bool, err error)
}

var _ pod.Keeper = (*Switch)(nil)

func (s *Switch) keepers() (out []pod.Keeper) {
	for _, d := range s.drivers() {
		if k, ok := d.(pod.Keeper); ok {
			out = append(out, k)
		}
	}
	return out
}

func (s *Switch) releasing(id pod.ID) bool {
	return slices.ContainsFunc(s.drivers(), func(d Driver) bool {
		r, ok := d.(Releaser)
		return ok && r.Releasing(id)
	})
}

// Held lists the ledger's entries, the addresses that pods lack, and what the
// drivers have.
func (s *Switch) Held(ctx context.Context, records []*pod.Record) ([]pod.Held, error) {
	out := []pod.Held{}
	ids, err := s.ledger.onDisk()
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if !s.releasing(id) {
			out = append(out, pod.Held{Kind: pod.KindAttachment, Name: s.ledger.path(id), Owner: string(id), Fault: s.fault(id, records)})
		}
	}
	for _, r := range records {
		out = append(out, lacking(r)...)
	}
	for _, k := range s.keepers() {
		held, err := k.Held(ctx, records)
		if err != nil {
			return nil, err
		}
		out = append(out, held...)
	}
	return out, nil
}

// fault says in what the entry of a running pod differs from its record.
func (s *Switch) fault(id pod.ID, records []*pod.Record) string {
	i := slices.IndexFunc(records, func(r *pod.Record) bool { return r.ID == id })
	if i < 0 || records[i].State != pod.Running {
		return ""
	}
	e, ok := s.ledger.Get(id)
	switch {
	case !ok:
		return "" // a file that was put there: missing from memory, see Wants
	case e.State == Damaged:
		return "it cannot be read"
	case !slices.Equal(e.Result.IPs, records[i].Sandbox.IPs):
		return fmt.Sprintf("the ledger says %v, the record %v", e.Result.IPs, records[i].Sandbox.IPs)
	}
	return ""
}

// lacking are the addresses of a running pod that its interface does not have.
// Where its namespace cannot be entered, others say what is wrong. A sandbox takes
// the addresses away from the interface and has them inside.
func lacking(r *pod.Record) (out []pod.Held) {
	if r.State != pod.Running || r.Sandbox.OwnKernel || r.Sandbox.NetNS == "" || len(r.Sandbox.IPs) == 0 {
		return nil
	}
	have, err := AddressesInside(r.Sandbox.NetNS)
	if err != nil {
		return nil
	}
	for _, ip := range r.Sandbox.IPs {
		if !slices.Contains(have, ip) {
			out = append(out, pod.Held{
				Kind: pod.KindAddress, Name: ip.String(), Owner: string(r.ID),
				Fault: fmt.Sprintf("%s in the pod has %v", InterfaceName, have),
			})
		}
	}
	return out
}

// Wants is an entry in the ledger, and what the pod's driver needs.
func (s *Switch) Wants(r *pod.Record) []pod.Held {
	if r.State != pod.Running || r.Config.HostNetwork() {
		return nil
	}
	out := []pod.Held{{Kind: pod.KindAttachment, Name: s.ledger.path(r.ID), Owner: string(r.ID)}}
	for _, k := range s.keepers() {
		out = append(out, k.Wants(r)...)
	}
	return out
}

// Drop detaches what nobody needs, and waits for nothing.
func (s *Switch) Drop(ctx context.Context, h pod.Held) error {
	if h.Kind != pod.KindAttachment {
		return s.each(h, func(k pod.Keeper) error { return k.Drop(ctx, h) })
	}
	id := pod.ID(h.Owner)
	if _, ok := s.ledger.Get(id); !ok {
		s.ledger.load(filepath.Base(h.Name)) // somebody put it there since the start
	}
	if err := s.Detach(ctx, id); err != nil {
		return err
	}
	for _, d := range s.drivers() {
		if r, ok := d.(Releaser); ok {
			if err := r.ReleaseNow(ctx, id); err != nil {
				return err
			}
		}
	}
	return s.ledger.Forget(id)
}

// Restore puts an entry back, or lets the pod's driver do what is to be done.
func (s *Switch) Restore(ctx context.Context, r *pod.Record, h pod.Held) error {
	if h.Kind != pod.KindAttachment {
		return s.each(h, func(k pod.Keeper) error { return k.Restore(ctx, r, h) })
	}
	if e, ok := s.ledger.Get(r.ID); ok && e.State != Damaged {
		return s.ledger.Record(e)
	}
	for _, d := range s.drivers() {
		if v, ok := d.(Reviver); ok {
			if ok, err := v.Revive(ctx, r); ok || err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("put back the network attachment of pod %s: nothing on the host tells it; remove the pod, and its owner makes another: %w", r.ID.Short(), errdefs.ErrPrecondition)
}

// each lets the drivers do something about a thing of one of them. The others
// say that they have no such thing.
func (s *Switch) each(h pod.Held, do func(pod.Keeper) error) error {
	for _, k := range s.keepers() {
		if err := do(k); !errors.Is(err, errdefs.ErrInvalidArgument) {
			return err
		}
	}
	return fmt.Errorf("%s %s: no network has such a thing: %w", h.Kind, h.Name, errdefs.ErrInvalidArgument)
}

// onDisk are the ids of the entries that have a file.
func (l *Ledger) onDisk() (ids []pod.ID, err error) {
	files, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, fmt.Errorf("list the network ledger: %w", err)
	}
	for _, f := range files {
		if stem, ok := strings.CutSuffix(f.Name(), ".json"); ok && validID.MatchString(stem) {
			ids = append(ids, pod.ID(stem))
		}
	}
	return ids, nil
}

// Holds says whether an attachment has the address.
func (l *Ledger) Holds(ip netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if slices.Contains(e.Result.IPs, ip) {
			return true
		}
	}
	return false
}

// AddressesInside are those of a pod's interface. An interface that is not
// there wraps errdefs.ErrPrecondition.
func AddressesInside(netns string) ([]netip.Addr, error) {
	h, err := handleInside(netns)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	l, err := h.LinkByName(InterfaceName)
	if isLinkNotFound(err) {
		return nil, fmt.Errorf("the pod has no %s: %w", InterfaceName, errdefs.ErrPrecondition)
	}
	if err != nil {
		return nil, fmt.Errorf("find %s in the pod: %w", InterfaceName, err)
	}
	addrs, err := Dump(func() ([]netlink.Addr, error) { return h.AddrList(l, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses of the pod: %w", err)
	}
	var out []netip.Addr
	for _, a := range addrs {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			out = append(out, ip.Unmap())
		}
	}
	return out, nil
}

func handleInside(netns string) (h *netlink.Handle, err error) {
	err = InNetNS(netns, func() (err error) {
		h, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	return h, err
}

func isLinkNotFound(err error) bool {
	var notFound netlink.LinkNotFoundError
	return errors.As(err, &notFound)
}
