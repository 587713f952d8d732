package bridge

import (
	"log/slog"
	"testing"
	"time"

	"fairlead.run/internal/network"
	"fairlead.run/internal/network/networktest"
)

func TestMain(m *testing.M) { networktest.Main(m) }

func newDriver(t *testing.T, cfg Config, l *network.Ledger) *Driver {
	t.Helper()
	if cfg.Bridge == "" {
		cfg.Bridge, cfg.Table = "fltest0", "fltest"
	}
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	cfg.ReleaseGrace = 300 * time.Millisecond
	d, err := New(cfg, l)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestContract(t *testing.T) {
	networktest.Run(t, networktest.Subject{
		New:     func(t *testing.T, l *network.Ledger) network.Driver { return newDriver(t, Config{}, l) },
		Traffic: true, IPv6: hasIPv6(), HostPorts: true, LoopbackHostPorts: true, PortConflicts: true,
	})
}
