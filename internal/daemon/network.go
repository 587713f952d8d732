package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"

	config "fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/network"
	"fairlead.run/internal/network/bridge"
	"fairlead.run/internal/network/cni"
)

// openNetwork makes both networks and the switch between them.
func openNetwork(cfg *config.Config, log *slog.Logger) (*criNetwork, error) {
	dir := filepath.Join(cfg.Root, "network")
	ledger, err := network.OpenLedger(network.LedgerConfig{Dir: filepath.Join(dir, "attachments")})
	if err != nil {
		return nil, err
	}
	bc, err := bridgeConfig(&cfg.Network, log)
	if err != nil {
		return nil, err
	}
	bc.RangesFile = filepath.Join(dir, "pod-ranges.json")
	builtin, err := bridge.New(bc, ledger)
	if err != nil {
		return nil, err
	}
	plugins, err := cni.New(cni.Config{
		ConfDir: cfg.Network.ConfDir, BinDirs: cfg.Network.BinDirs,
		CacheDir: filepath.Join(dir, "cni-cache"), Log: log,
	}, ledger)
	if err != nil {
		return nil, err
	}
	return &criNetwork{network.NewSwitch(ledger, builtin, plugins), builtin, log}, nil
}

func bridgeConfig(n *config.Network, log *slog.Logger) (bridge.Config, error) {
	v4, err4 := prefix("network.ipv4", n.IPv4)
	v6, err6 := prefix("network.ipv6", n.IPv6)
	return bridge.Config{
		Bridge: n.Bridge, Table: n.Bridge, IPv4: v4, IPv6: v6,
		DisableIPv6: n.DisableIPv6, MTU: n.MTU, Log: log,
	}, errors.Join(err4, err6)
}

func prefix(key, s string) (netip.Prefix, error) {
	if s == "" {
		return netip.Prefix{}, nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("%s: %w", key, err)
	}
	return p, nil
}

// criNetwork is the network in the terms of the CRI server.
type criNetwork struct {
	*network.Switch
	bridge *bridge.Driver
	log    *slog.Logger
}

// SetPodCIDR gives the ranges of a cluster to the built-in bridge, which takes
// them unless the configuration names others. A CNI conflist has its own ways
// to learn them.
func (n criNetwork) SetPodCIDR(_ context.Context, ranges []netip.Prefix) error {
	n.log.Info("the cluster told this node's pod ranges", "ranges", ranges)
	return n.bridge.UseRanges(ranges)
}
