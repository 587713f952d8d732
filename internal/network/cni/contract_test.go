package cni

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fairlead.run/internal/network"
	"fairlead.run/internal/network/networktest"
)

func TestMain(m *testing.M) { networktest.Main(m) }

// pluginDirs is where Debian and the plugins' own releases put them.
var pluginDirs = []string{"/opt/cni/bin", "/usr/lib/cni"}

func needPlugins(t *testing.T, names ...string) {
	t.Helper()
	networktest.NeedRoot(t)
	for _, n := range names {
		if _, err := findPlugin(n, pluginDirs); err != nil {
			t.Skipf("needs the CNI plugin %s (Debian: containernetworking-plugins)", n)
		}
	}
}

// lab is a configuration directory of a test.
type lab struct {
	t    *testing.T
	conf string // ConfDir
	bin  string // plugins made by the test
	cfg  Config
}

func newLab(t *testing.T) *lab {
	dir := t.TempDir()
	l := &lab{t: t, conf: filepath.Join(dir, "net.d"), bin: filepath.Join(dir, "bin")}
	for _, d := range []string{l.conf, l.bin} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	l.cfg = Config{
		ConfDir: l.conf, BinDirs: append([]string{l.bin}, pluginDirs...), CacheDir: filepath.Join(dir, "cache"),
		Settle: 30 * time.Millisecond, AddTimeout: 20 * time.Second, DelTimeout: 20 * time.Second,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	return l
}

func (l *lab) write(name, content string) {
	l.t.Helper()
	if err := os.WriteFile(filepath.Join(l.conf, name), []byte(content), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) remove(name string) {
	l.t.Helper()
	if err := os.Remove(filepath.Join(l.conf, name)); err != nil {
		l.t.Fatal(err)
	}
}

// plugin writes a plugin as a shell script. $CNI_COMMAND is set and the
// configuration is on its standard input.
func (l *lab) plugin(name, script string) {
	l.t.Helper()
	if err := os.WriteFile(filepath.Join(l.bin, name), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) driver(ledger *network.Ledger) *Driver {
	l.t.Helper()
	d, err := New(l.cfg, ledger)
	if err != nil {
		l.t.Fatal(err)
	}
	return d
}

func newLedger(t *testing.T) *network.Ledger {
	t.Helper()
	l, err := network.OpenLedger(network.LedgerConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// bridgeConflist is what many small clusters have.
func bridgeConflist(dataDir string) string {
	ranges := `[{"subnet":"10.199.0.0/24"}],[{"subnet":"fd99:199::/64"}]`
	if _, err := os.Stat("/proc/sys/net/ipv6"); err != nil {
		ranges = `[{"subnet":"10.199.0.0/24"}]`
	}
	return fmt.Sprintf(`{
  "cniVersion": "1.0.0", "name": "flcni",
  "plugins": [
    {"type": "bridge", "bridge": "flcni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
     "ipam": {"type": "host-local", "dataDir": %q, "ranges": [%s], "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true}
  ]}`, dataDir, ranges)
}

func TestContract(t *testing.T) {
	needPlugins(t, "bridge", "host-local", "portmap")
	labs := map[*testing.T]*lab{}
	// One for all, so that no test gets the addresses of the one before, whose
	// hardware addresses the node still remembers.
	dataDir := t.TempDir()
	networktest.Run(t, networktest.Subject{
		New: func(t *testing.T, ledger *network.Ledger) network.Driver {
			if labs[t] == nil {
				labs[t] = newLab(t)
				labs[t].write("10-test.conflist", bridgeConflist(dataDir))
			}
			return labs[t].driver(ledger)
		},
		Traffic: true, IPv6: true, HostPorts: true, LoopbackHostPorts: true,
	})
}
