package daemon

import (
	"log/slog"
	"net"
	"net/netip"

	config "fairlead.run/api/config/v1alpha1"
)

// warnOfReach says which addresses others than this host reach. Nobody is asked
// there who they are.
func warnOfReach(cfg *config.Config, log *slog.Logger) {
	if a := cfg.Metrics.Address; a != "" && !onlyHere(a) {
		log.Warn("metrics are told beyond this host, to whoever asks", "key", "metrics.address", "address", a)
	}
	if a := cfg.Streaming.Address; !onlyHere(a) {
		log.Warn("streams are served beyond this host, unencrypted, to whoever knows the address of one", "key", "streaming.address", "address", a)
	}
}

// onlyHere says whether an address to listen at is on the loopback. Of a name, only
// localhost is known to be.
func onlyHere(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}
