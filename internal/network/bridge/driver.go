package bridge

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/network"
	"fairlead.run/internal/network/bridge/claims"
	"fairlead.run/internal/network/bridge/nat"
	"fairlead.run/internal/pod"
)

// Name is what the ledger calls this driver.
const Name = "bridge"

// Driver is the built-in network. Make one with New.
type Driver struct {
	cfg    Config
	ledger *network.Ledger
	nl     *netlink.Handle
	nat    *nat.Table
	wake   chan struct{} // capacity 1: releases wait for Run

	// hostMu is held for reading while a pod is connected, and for writing
	// while the bridge is made or removed. A pod's lock in the ledger comes
	// before it.
	hostMu             sync.RWMutex
	host               *host        // nil until the first pod needs it
	cluster4, cluster6 netip.Prefix // see UseRanges

	mu        sync.Mutex
	pools     []*claims.Pool // IPv4 first; none before the first pod
	ports     claims.Ports
	verified  map[pod.ID]struct{} // seen to be complete by this process
	releasing map[string]release  // by the name of the host's link
}

// host is the shared part of the network, once it is there.
type host struct {
	index  int
	mtu    int
	notes  []string
	natErr error // why there is no address translation
}

// release is a pod that was detached and whose link has not gone yet.
type release struct {
	id    pod.ID
	ips   []netip.Addr
	force time.Time // when to take the link out of a namespace that lives on
	seen  bool      // Run has seen the link there, and waits for an event
}

// record is what the ledger keeps for this driver.
type record struct {
	Veth     string         `json:"veth"`
	Gateways []netip.Prefix `json:"gateways"` // the bridge's address in each range
}

var (
	_ network.Driver    = (*Driver)(nil)
	_ network.Purger    = (*Driver)(nil)
	_ network.Describer = (*Driver)(nil)
)

// New makes the driver. It changes nothing on the host before the first Attach.
func New(cfg Config, ledger *network.Ledger) (*Driver, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure bridge network: %w", err)
	}
	cfg = cfg.withDefaults()
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("configure bridge network: open netlink: %w", err)
	}
	d := &Driver{
		cfg: cfg, ledger: ledger, nl: h,
		nat:       nat.New(cfg.Bridge, cfg.Table),
		wake:      make(chan struct{}, 1),
		ports:     claims.Ports{},
		verified:  map[pod.ID]struct{}{},
		releasing: map[string]release{},
	}
	d.recallRanges()
	return d, nil
}

// Name returns "bridge".
func (d *Driver) Name() string { return Name }

// Notes tells what was changed on the host and what this kernel lacks.
func (d *Driver) Notes() []string {
	d.hostMu.RLock()
	defer d.hostMu.RUnlock()
	if d.host == nil {
		return nil
	}
	notes := slices.Clone(d.host.notes)
	if d.host.natErr != nil {
		notes = append(notes, fmt.Sprintf("no address translation, so pods reach only each other and the node, and hostPort is refused: %v", d.host.natErr))
	}
	return notes
}

// entries are the attachments of this driver. No link outlives the boot, and so
// of older ones nothing is left.
func (d *Driver) entries() []network.Entry {
	return slices.DeleteFunc(d.ledger.List(Name), func(e network.Entry) bool { return e.Driver != Name || !d.ledger.ThisBoot(e) })
}

// forgetBoots drops the entries of earlier boots.
func (d *Driver) forgetBoots() error {
	for _, e := range d.ledger.List(Name) {
		if e.Driver == Name && !d.ledger.ThisBoot(e) {
			if err := d.ledger.Forget(e.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *Driver) recordOf(e network.Entry) record {
	var r record
	// An entry that cannot be decoded is treated by name, which is derived.
	_ = json.Unmarshal(e.Data, &r)
	r.Veth = vethName(d.cfg.Bridge, e.ID)
	return r
}

// poke makes Run look at what waits.
func (d *Driver) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}
