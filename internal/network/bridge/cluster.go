package bridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"

	"fairlead.run/internal/atomicfile"
	"fairlead.run/internal/errdefs"
)

// rangesFile is what Config.RangesFile holds.
type rangesFile struct {
	Version int            `json:"version"` // 1
	Ranges  []netip.Prefix `json:"ranges"`
}

// UseRanges takes the ranges that a cluster gives to this node, at most one of
// each address family, for the pods to come. Pods that run keep their addresses
// and their gateways. A range of the configuration is not replaced. The ranges
// are remembered in Config.RangesFile, because a cluster tells them to a node
// that starts and not to a daemon that was replaced.
//
// A range that a route of the node leads into wraps errdefs.ErrPrecondition,
// and one that cannot be a pod range errdefs.ErrInvalidArgument; both change
// nothing.
func (d *Driver) UseRanges(ranges []netip.Prefix) error {
	v4, v6, err := byFamily(ranges)
	if err != nil {
		return fmt.Errorf("use the pod ranges of the cluster: %w", err)
	}
	d.hostMu.Lock()
	defer d.hostMu.Unlock()
	if v4 == d.cluster4 && v6 == d.cluster6 {
		return nil
	}
	old4, old6 := d.cluster4, d.cluster6
	d.cluster4, d.cluster6 = v4, v6
	if err := d.moveHost(); err != nil {
		d.cluster4, d.cluster6 = old4, old6
		return fmt.Errorf("use the pod ranges of the cluster: %w", err)
	}
	return d.rememberRanges()
}

// byFamily sorts the ranges out, and validates them as configured ones are.
func byFamily(ranges []netip.Prefix) (v4, v6 netip.Prefix, err error) {
	for _, p := range ranges {
		of := &v6
		if p.Addr().Is4() {
			of = &v4
		}
		if of.IsValid() {
			return v4, v6, fmt.Errorf("%s and %s are of the same address family: want at most one of each: %w", *of, p, errdefs.ErrInvalidArgument)
		}
		*of = p.Masked()
	}
	return v4, v6, Config{IPv4: v4, IPv6: v6}.Validate()
}

// moveHost gives a network that is up its new ranges. If they do not work, it
// is left as it was. d.hostMu is held.
func (d *Driver) moveHost() error {
	if _, _, err := d.chooseRanges(); err != nil || d.host == nil {
		return err
	}
	before := d.allGateways()
	h, err := d.makeHost()
	if err != nil {
		d.host = nil // the next pod makes it anew
		return err
	}
	d.host = h
	return d.dropGateways(before)
}

// allGateways are the bridge's addresses as they should be now.
func (d *Driver) allGateways() []netip.Prefix {
	d.mu.Lock()
	var ranges []netip.Prefix
	for _, p := range d.pools {
		ranges = append(ranges, p.Prefix)
	}
	d.mu.Unlock()
	return d.gateways(ranges)
}

// dropGateways takes those addresses off the bridge that no pod leaves by and
// that belong to no range any more. Those of running pods go with the bridge.
func (d *Driver) dropGateways(before []netip.Prefix) error {
	br, err := d.nl.LinkByName(d.cfg.Bridge)
	if err != nil {
		return fmt.Errorf("find bridge: %w", err)
	}
	have, err := d.addresses(br)
	if err != nil {
		return err
	}
	now := d.allGateways()
	for _, g := range before {
		if slices.Contains(now, g) || !slices.Contains(have, g) {
			continue
		}
		if err := d.delAddress(br, g); err != nil {
			return err
		}
	}
	return nil
}

// rangeOf is the configured range, or else the cluster's.
func rangeOf(configured, cluster netip.Prefix) netip.Prefix {
	if configured.IsValid() {
		return configured
	}
	return cluster
}

func (d *Driver) rememberRanges() error {
	if d.cfg.RangesFile == "" {
		return nil
	}
	f := rangesFile{Version: 1}
	for _, p := range []netip.Prefix{d.cluster4, d.cluster6} {
		if p.IsValid() {
			f.Ranges = append(f.Ranges, p)
		}
	}
	data, err := json.Marshal(f)
	if err == nil {
		err = atomicfile.Write(d.cfg.RangesFile, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("remember the pod ranges of the cluster: %w", err)
	}
	return nil
}

// recallRanges reads what rememberRanges wrote. A file that is damaged is as
// good as none: the cluster tells its ranges again when the node starts.
func (d *Driver) recallRanges() {
	if d.cfg.RangesFile == "" {
		return
	}
	data, err := os.ReadFile(d.cfg.RangesFile)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var f rangesFile
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err == nil && f.Version != 1 {
		err = fmt.Errorf("version %d is not known to this build", f.Version)
	}
	if err == nil {
		d.cluster4, d.cluster6, err = byFamily(f.Ranges)
	}
	if err != nil {
		d.cluster4, d.cluster6 = netip.Prefix{}, netip.Prefix{}
		d.cfg.Log.Warn("the remembered pod ranges of the cluster cannot be read; they are left out until it tells them again",
			"file", d.cfg.RangesFile, "error", err)
	}
}
