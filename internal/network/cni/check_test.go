package cni

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/network"
	"fairlead.run/internal/network/networktest"
	"fairlead.run/internal/pod"
)

// checked is a pod on a conflist, as an audit sees it.
type checked struct {
	*lab
	*network.Switch
	pod    *networktest.Pod
	record *pod.Record
}

func newChecked(t *testing.T, conflist string) *checked {
	t.Helper()
	c := &checked{lab: newLab(t)}
	c.write("10-test.conflist", conflist)
	ledger := newLedger(t)
	c.Switch = network.NewSwitch(ledger, networktest.NewFake(ledger), c.driver(ledger))
	c.pod = networktest.NewPod(t, "web", pod.PortMapping{Protocol: "tcp", HostPort: 18095, ContainerPort: 80})
	c.pod.Req.Annotations = map[string]string{network.IngressBandwidth: "10M"}
	res, err := c.Attach(t.Context(), c.pod.Req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Detach(context.Background(), c.pod.Req.ID); err != nil {
			t.Error(err)
		}
	})
	c.record = &pod.Record{ID: c.pod.Req.ID, State: pod.Running, Sandbox: pod.Sandbox{NetNS: c.pod.Path, IPs: res.IPs}}
	return c
}

// in does something in the pod's namespace with its interface.
func (c *checked) in(do func(eth0 netlink.Link) error) {
	c.t.Helper()
	err := network.InNetNS(c.pod.Path, func() error {
		l, err := netlink.LinkByName(network.InterfaceName)
		if err != nil {
			return err
		}
		return do(l)
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *checked) loseInterface() { c.in(netlink.LinkDel) }

func (c *checked) loseRoutes() {
	c.in(func(l netlink.Link) error {
		routes, err := netlink.RouteList(l, netlink.FAMILY_V4)
		for _, r := range routes {
			if r.Gw != nil {
				err = errors.Join(err, netlink.RouteDel(&r))
			}
		}
		return err
	})
}

func (c *checked) losePorts() {
	if out, err := exec.Command("iptables", "-t", "nat", "-F", "CNI-HOSTPORT-DNAT").CombinedOutput(); err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
}

func (c *checked) loseSysctl() {
	c.in(func(netlink.Link) error { return os.WriteFile("/proc/sys/net/core/somaxconn", []byte("400"), 0o600) })
}

// loseAddresses does what a sandbox with a kernel of its own does.
func (c *checked) loseAddresses() {
	c.in(func(l netlink.Link) error {
		addrs, err := netlink.AddrList(l, netlink.FAMILY_V4)
		for _, a := range addrs {
			err = errors.Join(err, netlink.AddrDel(l, &a))
		}
		return err
	})
}

// TestExamine damages what the usual plugins have made, and looks what is said.
func TestExamine(t *testing.T) {
	needPlugins(t, "bridge", "host-local", "portmap", "bandwidth", "firewall", "tuning")
	whole := strings.Replace(bridgeConflist(t.TempDir()), `"snat": true}`, `"snat": true},
		{"type": "bandwidth", "capabilities": {"bandwidth": true}}, {"type": "firewall"}, {"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}}`, 1)
	disabled := strings.Replace(whole, `"plugins"`, `"disableCheck": true, "plugins"`, 1)
	plain := strings.Replace(whole, `"snat": true`, `"snat": false`, 1)
	old := strings.Replace(bridgeConflist(t.TempDir()), `"1.0.0"`, `"0.3.1"`, 1)
	single := strings.NewReplacer(`,[{"subnet":"fd99:199::/64"}]`, "", `, {"dst": "::/0"}`, "").Replace(bridgeConflist(t.TempDir()))
	nothing := func(*checked) {}
	for name, tc := range map[string]struct {
		conflist string
		damage   func(*checked)
		want     string // in the fault; "" if there is to be none
	}{
		"in order":                      {whole, nothing, ""},
		"in order, no SNAT":             {plain, nothing, ""},
		"in order, IPv4 alone":          {single, nothing, ""},
		"without its host port":         {single, (*checked).losePorts, "plugin portmap CHECK"},
		"without what portmap precedes": {whole, (*checked).loseSysctl, "plugin tuning CHECK"},
		"without its interface":         {whole, (*checked).loseInterface, "has no eth0"},
		"without its route":             {whole, (*checked).loseRoutes, "plugin bridge CHECK"},
		"without its addresses":         {whole, (*checked).loseAddresses, "plugin bridge CHECK"},
		"check disabled":                {disabled, (*checked).loseRoutes, ""},
		"check disabled, no interface":  {disabled, (*checked).loseInterface, "has no eth0"},
		"before CHECK":                  {old, (*checked).loseRoutes, ""},
		"own kernel":                    {whole, func(c *checked) { c.record.Sandbox.OwnKernel = true; c.loseAddresses() }, ""},
		"own kernel, no interface":      {whole, func(c *checked) { c.record.Sandbox.OwnKernel = true; c.loseInterface() }, "has no eth0"},
		"no namespace":                  {whole, func(c *checked) { c.record.Sandbox.NetNS += ".away" }, ""},
		"result gone": {whole, func(c *checked) {
			if err := os.RemoveAll(c.cfg.CacheDir); err != nil {
				c.t.Fatal(err)
			}
		}, "at ADD is gone from"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChecked(t, tc.conflist)
			tc.damage(c)
			held, err := c.Examine(t.Context(), c.record)
			switch {
			case err != nil:
				t.Error(err)
			case tc.want == "" && len(held) > 0, tc.want != "" && (len(held) != 1 || !strings.Contains(held[0].Fault, tc.want)):
				t.Errorf("%+v, want a fault with %q", held, tc.want)
			}
		})
	}
}

// TestCheckAnswers wants only what a plugin says of the pod to be a fault of it.
func TestCheckAnswers(t *testing.T) {
	networktest.NeedRoot(t)
	plugin := func(check string) string {
		return fmt.Sprintf(`case "$CNI_COMMAND" in
ADD) echo '%s';;
CHECK) %s;;
esac`, answer, check)
	}
	say := func(code int) string {
		return plugin(fmt.Sprintf(`echo '{"cniVersion":"1.1.0","code":%d,"msg":"it says so"}'; exit 1`, code))
	}
	for name, tc := range map[string]struct {
		script string
		fault  bool
		known  bool // whether the network is in order
	}{
		"well":               {plugin("true"), false, true},
		"fault":              {say(100), true, true},
		"again later":        {say(11), false, false},
		"not for CHECK":      {say(1), false, true},
		"no such command":    {say(4), false, true},
		"crashes":            {plugin("exit 2"), false, false},
		"hangs":              {plugin("sleep 1000"), false, false},
		"removed since then": {"", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.plugin("own", tc.script)
			if tc.script == "" {
				l.plugin("own", plugin("true"))
			}
			l.write("1.conflist", `{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"own"}]}`)
			d := l.driver(newLedger(t))
			p := networktest.NewPod(t, "web")
			if _, err := d.Attach(t.Context(), p.Req); err != nil {
				t.Fatal(err)
			}
			if tc.script == "" {
				if err := os.Remove(filepath.Join(l.bin, "own")); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			err := d.Check(ctx, p.Req.ID)
			if errors.Is(err, errdefs.ErrPrecondition) != tc.fault || (err == nil || tc.fault) != tc.known {
				t.Error(err)
			}
			if name != "hangs" && ctx.Err() != nil {
				t.Error("it took too long")
			}
		})
	}
}
