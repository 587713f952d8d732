package cni

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/network"
	"fairlead.run/internal/pod"
)

// Check runs CHECK, where the configuration's version has it and the
// administrator has not disabled it. What a plugin answers is a fault of the
// pod's network; that one is missing, crashes or does not answer tells nothing.
func (d *Driver) Check(ctx context.Context, id pod.ID) error {
	unlock, err := d.ledger.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	e, ok := d.ledger.Get(id)
	if !ok || e.Driver != Name || e.State != network.Attached {
		return fmt.Errorf("check network of pod %s: it is not attached: %w", id.Short(), errdefs.ErrNotFound)
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.DelTimeout)
	defer cancel()
	list, rt, rec, err := restore(e)
	if err != nil {
		return err
	}
	if err := d.check(ctx, list, rt, e.Result.IPs); err != nil {
		return fmt.Errorf("check network of pod %s: CNI configuration %s, network %q: %w", id.Short(), rec.File, list.Name, err)
	}
	return nil
}

// check asks the plugins in turn, which end at the first that complains.
func (d *Driver) check(ctx context.Context, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf, ips []netip.Addr) error {
	rest := *list
	for {
		err := d.judge(d.cni.CheckNetworkList(ctx, &rest, rt), list, rt)
		i := slices.IndexFunc(rest.Plugins, func(p *libcni.PluginConfig) bool { return p.Network.Type == "portmap" })
		if i < 0 || !wrongFamily(err, ips) {
			return err
		}
		rest.Plugins = rest.Plugins[i+1:]
	}
}

// wrongFamily recognises what portmap 1.1, which Debian 12 has, says of every pod
// with a host port: it looks for the rules of an address among those of the other
// family, too.
func wrongFamily(err error, ips []netip.Addr) bool {
	var answer *types.Error
	if !errors.As(err, &answer) {
		return false
	}
	of := map[string]func(netip.Addr) bool{"could not check ipv4 dnat: ": netip.Addr.Is4, "could not check ipv6 dnat: ": netip.Addr.Is6}
	for begin, family := range of {
		if !strings.HasPrefix(answer.Msg, begin) {
			continue
		}
		named := slices.ContainsFunc(ips, func(ip netip.Addr) bool { return !family(ip) && names(answer.Msg, ip) })
		return named || !slices.ContainsFunc(ips, family)
	}
	return false
}

// names says whether a rule of iptables in the text has the address as a source
// or as what a port leads to.
func names(text string, ip netip.Addr) bool {
	port := strings.TrimSuffix(netip.AddrPortFrom(ip, 0).String(), "0")
	return strings.Contains(text, " "+ip.String()+"/") || strings.Contains(text, " "+port)
}

// judge says what an error of CHECK means for the pod.
func (d *Driver) judge(err error, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error {
	var answer *types.Error
	switch {
	case err == nil || errors.Is(err, libcni.ErrorCheckNotSupp):
		return nil
	case !errors.As(err, &answer) || errors.Is(err, errdefs.ErrUnavailable):
		return err
	// ADD worked with the same version and variables, but for CNI_COMMAND.
	case answer.Code == types.ErrIncompatibleCNIVersion || answer.Code == types.ErrInvalidEnvironmentVariables:
		return nil
	}
	if r, lost := d.cni.GetNetworkListCachedResult(list, rt); r == nil && lost == nil {
		err = fmt.Errorf("what the plugins said at ADD is gone from %s, so that they cannot compare: %w", d.cfg.CacheDir, err)
	}
	return fmt.Errorf("%w%w", err, silentKind{errdefs.ErrPrecondition})
}
