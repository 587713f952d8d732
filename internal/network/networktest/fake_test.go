package networktest_test

import (
	"testing"

	"fairlead.run/internal/network"
	"fairlead.run/internal/network/networktest"
)

func TestMain(m *testing.M) { networktest.Main(m) }

func TestFake(t *testing.T) {
	networktest.Run(t, networktest.Subject{
		New: func(_ *testing.T, l *network.Ledger) network.Driver { return networktest.NewFake(l) },
	})
}
