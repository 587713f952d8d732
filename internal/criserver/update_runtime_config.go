package criserver

import (
	"context"
	"net/netip"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UpdateRuntimeConfig takes the pod CIDR that the cluster gave to this node:
// one range, or one of each address family with a comma between them.
func (s *Server) UpdateRuntimeConfig(ctx context.Context, r *cri.UpdateRuntimeConfigRequest) (*cri.UpdateRuntimeConfigResponse, error) {
	list := r.GetRuntimeConfig().GetNetworkConfig().GetPodCidr()
	if list == "" {
		return &cri.UpdateRuntimeConfigResponse{}, nil
	}
	var d decoder
	var ranges []netip.Prefix
	for _, cidr := range strings.Split(list, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(cidr))
		if err != nil {
			d.fail("runtime_config.network_config.pod_cidr", "is %q; it must be a range such as 10.88.0.0/16, or two", list)
			return nil, d.err
		}
		ranges = append(ranges, prefix.Masked())
	}
	return &cri.UpdateRuntimeConfigResponse{}, s.cfg.Network.SetPodCIDR(ctx, ranges)
}
