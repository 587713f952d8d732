package bridge

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

const (
	shapeLatency = 25 // ms that a packet may wait before it is dropped
	shapeBurst   = 50 // ms of traffic at the full rate that may pass at once
	minBurst     = 64 << 10
)

// shape limits what leaves through a link to rate bits per second; 0 does
// nothing. A pod's ingress is what leaves the host's end of its link, and its
// egress what leaves its own end. A container with CAP_NET_ADMIN in the pod can
// remove the latter.
func shape(h *netlink.Handle, index int, rate uint64) error {
	if rate == 0 {
		return nil
	}
	bytes := max(rate/8, 1)
	burst := min(max(bytes*shapeBurst/1000, minBurst), 1<<31)
	limit := min(bytes*shapeLatency/1000+burst, 1<<32-1)
	err := h.QdiscAdd(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       bytes,
		Limit:      uint32(limit),
		Buffer:     netlink.Xmittime(bytes, uint32(burst)),
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("this kernel has no token bucket scheduler (sch_tbf): %w", errdefs.ErrUnimplemented)
	}
	return err
}
