package cni

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.run/internal/network"
	"fairlead.run/internal/network/networktest"
)

// TestReadiness walks a configuration through being absent, broken, short of a
// plugin, refused by a plugin, working and gone, without a restart.
func TestReadiness(t *testing.T) {
	for _, watched := range []bool{true, false} {
		t.Run(map[bool]string{true: "watched", false: "not watched"}[watched], func(t *testing.T) {
			l := newLab(t)
			d := l.driver(newLedger(t))
			if watched {
				networktest.Start(t, d.Run)
			}
			says := func(want string) {
				t.Helper()
				networktest.Eventually(t, "Status to say "+want, func() bool {
					err := d.Status(context.Background())
					return err != nil && strings.Contains(err.Error(), want)
				})
			}
			says("no CNI configuration in " + l.conf)
			l.write("10-net.conflist", `{"cniVersion":"1.1.0",`)
			says("10-net.conflist is not usable")
			if !d.Configured() {
				t.Error("a broken configuration does not count as one")
			}
			l.write("10-net.conflist", `{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"mine"}]}`)
			says(`plugin "mine" is not in ` + l.bin)
			l.plugin("mine", `[ "$CNI_COMMAND" != STATUS ] || [ -e `+l.bin+`/up ] || { echo '{"cniVersion":"1.1.0","code":50,"msg":"the agent is away"}'; exit 1; }`)
			says("the agent is away")
			if err := os.WriteFile(filepath.Join(l.bin, "up"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			networktest.Eventually(t, "readiness", func() bool { return d.Status(context.Background()) == nil })
			l.write("05-first.conflist", "{")
			says("05-first.conflist is not usable")
			l.remove("05-first.conflist")
			networktest.Eventually(t, "readiness", func() bool { return d.Status(context.Background()) == nil })
			l.remove("10-net.conflist")
			networktest.Eventually(t, "the configuration to be gone", func() bool { return !d.Configured() })
		})
	}
}

func TestDirectoryAppears(t *testing.T) {
	l := newLab(t)
	l.cfg.ConfDir = filepath.Join(l.conf, "etc", "cni", "net.d")
	l.conf = l.cfg.ConfDir
	d := l.driver(newLedger(t))
	networktest.Start(t, d.Run)
	for range 2 {
		networktest.Eventually(t, "no configuration", func() bool { return !d.Configured() })
		if err := os.MkdirAll(l.conf, 0o700); err != nil {
			t.Fatal(err)
		}
		l.write("1.conflist", `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"mine"}]}`)
		networktest.Eventually(t, "the configuration", d.Configured)
		if err := os.RemoveAll(filepath.Dir(l.conf)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSwitch attaches one pod before there is a conflist, one while there is,
// and releases both by whom they were attached.
func TestSwitch(t *testing.T) {
	networktest.NeedRoot(t)
	l := newLab(t)
	log := l.spy("spy")
	ledger := newLedger(t)
	fake := networktest.NewFake(ledger)
	s := network.NewSwitch(ledger, fake, l.driver(ledger))
	networktest.Start(t, s.Run)
	builtin, byCNI := networktest.NewPod(t, "builtin"), networktest.NewPod(t, "cni")
	attach := func(p *networktest.Pod, driver string) {
		t.Helper()
		if _, err := s.Attach(context.Background(), p.Req); err != nil {
			t.Fatal(err)
		}
		if e, _ := ledger.Get(p.Req.ID); e.Driver != driver {
			t.Errorf("pod %s is with driver %q, want %q", p.Req.Metadata.Name, e.Driver, driver)
		}
	}
	attach(builtin, fake.Name())
	l.write("1.conflist", `{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"spy"}]}`)
	networktest.Eventually(t, "the conflist to count", func() bool { return s.Current().Name() == Name })
	attach(byCNI, Name)
	attach(builtin, fake.Name()) // stays where it is
	l.remove("1.conflist")
	networktest.Eventually(t, "the conflist to be gone", func() bool { return s.Current().Name() == fake.Name() })
	for _, p := range []*networktest.Pod{builtin, byCNI} {
		if err := s.Check(context.Background(), p.Req.ID); err != nil {
			t.Errorf("Check: %v", err)
		}
		if err := s.Detach(context.Background(), p.Req.ID); err != nil {
			t.Errorf("Detach: %v", err)
		}
	}
	if got := lines(t, log, "DEL"); len(got) != 1 || !strings.Contains(got[0], string(byCNI.Req.ID)) {
		t.Errorf("DEL was run as %q", got)
	}
}
