// Package claims knows which addresses and which ports of the node pods have. It
// is memory only: the network's ledger has the same facts, and whoever opens it
// claims them anew.
package claims

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"fairlead.run/internal/errdefs"
)

// Pool hands out the addresses of one range. It goes round the range before it
// gives an address out again, so that a packet on its way to a pod that has
// just ended does not meet the next one.
type Pool struct {
	Prefix netip.Prefix // the range
	last   uint64       // highest offset that a pod may have
	next   uint64
	used   map[netip.Addr]struct{}
}

// firstOffset leaves out the network's own address and the gateway.
const firstOffset = 2

// NewPool makes a pool of a range in which nothing is taken.
func NewPool(p netip.Prefix) *Pool {
	p = p.Masked()
	bits := min(p.Addr().BitLen()-p.Bits(), 32)
	last := uint64(1)<<bits - 1
	if p.Addr().Is4() {
		last-- // the broadcast address
	}
	return &Pool{Prefix: p, last: last, next: firstOffset, used: map[netip.Addr]struct{}{}}
}

// Gateway is the bridge's own address, with the length of the range.
func (p *Pool) Gateway() netip.Prefix { return netip.PrefixFrom(p.at(1), p.Prefix.Bits()) }

// Take reserves a free address.
func (p *Pool) Take() (netip.Addr, error) {
	size := p.last - firstOffset + 1
	if uint64(len(p.used)) >= size {
		return netip.Addr{}, fmt.Errorf("all %d addresses of %s are in use: %w", size, p.Prefix, errdefs.ErrExhausted)
	}
	for {
		a := p.at(p.next)
		p.next++
		if p.next > p.last {
			p.next = firstOffset
		}
		if _, busy := p.used[a]; !busy {
			p.used[a] = struct{}{}
			return a, nil
		}
	}
}

// Claim marks an address that a pod has already. Addresses of another range,
// from before a change of the configuration, cannot be handed out anyway.
func (p *Pool) Claim(a netip.Addr) {
	if !p.Prefix.Contains(a) {
		return
	}
	p.used[a] = struct{}{}
	if o := p.offset(a); o >= p.next && o < p.last {
		p.next = o + 1
	}
}

// Release gives an address back.
func (p *Pool) Release(a netip.Addr) { delete(p.used, a) }

func (p *Pool) at(offset uint64) netip.Addr {
	if p.Prefix.Addr().Is4() {
		b := p.Prefix.Addr().As4()
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(offset))
		return netip.AddrFrom4(b)
	}
	b := p.Prefix.Addr().As16()
	binary.BigEndian.PutUint64(b[8:], binary.BigEndian.Uint64(b[8:])+offset)
	return netip.AddrFrom16(b)
}

func (p *Pool) offset(a netip.Addr) uint64 {
	if a.Is4() {
		base, b := p.Prefix.Addr().As4(), a.As4()
		return uint64(binary.BigEndian.Uint32(b[:]) - binary.BigEndian.Uint32(base[:]))
	}
	base, b := p.Prefix.Addr().As16(), a.As16()
	return binary.BigEndian.Uint64(b[8:]) - binary.BigEndian.Uint64(base[8:])
}

// Taken lists the addresses that are not free.
func (p *Pool) Taken() []netip.Addr { return slices.Collect(maps.Keys(p.used)) }
