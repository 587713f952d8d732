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
func openNetwork(cfg *config.Config, log *slog.Logger) (*network.Switch, error) {
	dir := filepath.Join(cfg.Root, "network")
	ledger, err := network.OpenLedger(network.LedgerConfig{Dir: filepath.Join(dir, "attachments")})
	if err != nil {
		return nil, err
	}
	bc, err := bridgeConfig(&cfg.Network, log)
	if err != nil {
		return nil, err
	}
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
	return network.NewSwitch(ledger, builtin, plugins), nil
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
	log *slog.Logger
}

// SetPodCIDR notes the ranges that a cluster gives to this node. The built-in
// bridge keeps the ranges of its configuration: changing them under pods would
// cut these off. A CNI conflist has its own ways to learn them.
func (n criNetwork) SetPodCIDR(_ context.Context, cidrs []string) error {
	n.log.Info("the cluster told this node's pod ranges; set network.ipv4 and network.ipv6 to use them", "ranges", cidrs)
	return nil
}
