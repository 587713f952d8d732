package cni

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/network"
	"fairlead.run/internal/pod"
)

// convert reads a plugin's result, of whatever version. Addresses of other
// interfaces than the pod's are not the pod's.
func convert(r types.Result) (network.Result, error) {
	full, err := types100.NewResultFromResult(r)
	if err != nil {
		return network.Result{}, fmt.Errorf("read the plugins' result: %w", err)
	}
	out := network.Result{Interface: network.InterfaceName}
	inPod := func(i *int) bool {
		if i == nil || *i < 0 || *i >= len(full.Interfaces) {
			return i == nil // old plugins do not tell
		}
		iface := full.Interfaces[*i]
		if iface.Sandbox == "" || iface.Name != network.InterfaceName {
			return false
		}
		out.MAC = iface.Mac
		return true
	}
	for _, ip := range full.IPs {
		addr, ok := netip.AddrFromSlice(ip.Address.IP)
		if !ok || !inPod(ip.Interface) {
			continue
		}
		out.IPs = append(out.IPs, addr.Unmap())
		if gw, ok := netip.AddrFromSlice(ip.Gateway); ok {
			out.Gateways = append(out.Gateways, gw.Unmap())
		}
	}
	if len(out.IPs) == 0 {
		return out, fmt.Errorf("the plugins gave %s no address: add an ipam section to the configuration: %w", network.InterfaceName, errdefs.ErrUnavailable)
	}
	// The CRI's primary address is the first IPv4 one; otherwise their order counts.
	slices.SortStableFunc(out.IPs, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	if d := full.DNS; len(d.Nameservers)+len(d.Search)+len(d.Options) > 0 {
		out.DNS = &pod.DNS{Servers: d.Nameservers, Searches: d.Search, Options: d.Options}
	}
	return out, nil
}
