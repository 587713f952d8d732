package nat

import (
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Registers of nftables. reg1 is 16 bytes long; word0 to word3 are its parts
// and word4, word5 the ones behind it.
const (
	reg1  = unix.NFT_REG_1
	word1 = unix.NFT_REG32_01
	word2 = unix.NFT_REG32_02
	word4 = unix.NFT_REG32_04
	word5 = unix.NFT_REG32_05
)

// ctStatusDNAT is IPS_DST_NAT of the kernel's conntrack.
const ctStatusDNAT = 1 << 5

// family is what differs between IPv4 and IPv6 in a rule.
type family struct {
	proto      byte
	addrType   nftables.SetDatatype
	src, dst   uint32 // offsets in the network header
	size       uint32
	afterAddr  [2]uint32 // the two registers behind an address in reg1
	loopback   netip.Prefix
	ports      string // map by port
	portsBound string // map by address and port
}

var families = map[bool]family{ // by Is4
	true: {
		proto: unix.NFPROTO_IPV4, addrType: nftables.TypeIPAddr,
		src: 12, dst: 16, size: 4, afterAddr: [2]uint32{word1, word2},
		loopback: netip.MustParsePrefix("127.0.0.0/8"), ports: "ports4", portsBound: "ports4_bound",
	},
	false: {
		proto: unix.NFPROTO_IPV6, addrType: nftables.TypeIP6Addr,
		src: 8, dst: 24, size: 16, afterAddr: [2]uint32{word4, word5},
		loopback: netip.MustParsePrefix("::1/128"), ports: "ports6", portsBound: "ports6_bound",
	},
}

func (f family) portsMap(t *nftables.Table) *nftables.Set {
	return &nftables.Set{
		Table: t, Name: f.ports, IsMap: true, Concatenation: true,
		KeyType:  nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeInetService),
		DataType: nftables.MustConcatSetType(f.addrType, nftables.TypeInetService),
	}
}

func (f family) boundMap(t *nftables.Table) *nftables.Set {
	return &nftables.Set{
		Table: t, Name: f.portsBound, IsMap: true, Concatenation: true,
		KeyType:  nftables.MustConcatSetType(f.addrType, nftables.TypeInetProto, nftables.TypeInetService),
		DataType: nftables.MustConcatSetType(f.addrType, nftables.TypeInetService),
	}
}

// is matches packets of the family.
func (f family) is() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: reg1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: reg1, Data: []byte{f.proto}},
	}
}

// within matches the address at an offset against a range.
func (f family) within(offset uint32, p netip.Prefix) []expr.Any {
	mask := net.CIDRMask(p.Bits(), p.Addr().BitLen())
	return []expr.Any{
		&expr.Payload{DestRegister: reg1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: f.size},
		&expr.Bitwise{SourceRegister: reg1, DestRegister: reg1, Len: f.size, Mask: mask, Xor: make([]byte, f.size)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: reg1, Data: p.Masked().Addr().AsSlice()},
	}
}

// dnat translates the destination to what the map says; without an element in
// the map the next rule applies.
func (f family) dnat(set *nftables.Set, key []expr.Any) []expr.Any {
	return concat(f.is(), toNode(), key, []expr.Any{
		&expr.Lookup{SourceRegister: reg1, DestRegister: reg1, IsDestRegSet: true, SetName: set.Name, SetID: set.ID},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.proto), RegAddrMin: reg1, RegProtoMin: f.afterAddr[0]},
	})
}

// boundKey loads destination address, protocol and port.
func (f family) boundKey() []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: reg1, Base: expr.PayloadBaseNetworkHeader, Offset: f.dst, Len: f.size},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: f.afterAddr[0]},
		&expr.Payload{DestRegister: f.afterAddr[1], Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
	}
}

// portKeyExprs loads protocol and port.
func portKeyExprs() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg1},
		&expr.Payload{DestRegister: word1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
	}
}

// toNode matches packets to any address of the node.
func toNode() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: reg1, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: reg1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}
}

func link(key expr.MetaKey, op expr.CmpOp, name string) []expr.Any {
	padded := make([]byte, 16)
	copy(padded, name)
	return []expr.Any{
		&expr.Meta{Key: key, Register: reg1},
		&expr.Cmp{Op: op, Register: reg1, Data: padded},
	}
}

// translated matches connections whose destination was translated.
func translated() []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATUS, Register: reg1},
		&expr.Bitwise{
			SourceRegister: reg1, DestRegister: reg1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(ctStatusDNAT), Xor: make([]byte, 4),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg1, Data: make([]byte, 4)},
	}
}

func concat(parts ...[]expr.Any) []expr.Any {
	var out []expr.Any
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}
