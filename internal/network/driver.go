package network

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// InterfaceName is what a pod's network interface is called inside the pod.
const InterfaceName = "eth0"

// Request asks for one pod to be connected.
type Request struct {
	ID          pod.ID            `json:"id"`
	Metadata    pod.Metadata      `json:"metadata"`
	Hostname    string            `json:"hostname,omitempty"`
	NetNS       string            `json:"netns"` // a bind mount of the pod's network namespace
	Ports       []pod.PortMapping `json:"ports,omitempty"`
	DNS         *pod.DNS          `json:"dns,omitempty"`
	CgroupPath  string            `json:"cgroupPath,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Result is what a pod got.
type Result struct {
	// IPs are the pod's addresses, the primary one first: IPv4 where there is one.
	IPs []netip.Addr `json:"ips"`
	// Interface is the interface's name inside the pod.
	Interface string `json:"interface"`
	// Gateways are the next hops of the pod's default routes, if it has any.
	Gateways []netip.Addr `json:"gateways,omitempty"`
	// DNS is what the network itself recommends; nil if it says nothing.
	DNS *pod.DNS `json:"dns,omitempty"`
	// MAC is the hardware address inside the pod, as far as it is known.
	MAC string `json:"mac,omitempty"`
}

// Driver connects pods to one kind of network.
//
// Every method may be called by several goroutines, for one pod at a time or
// for many. Attach and Detach are idempotent and safe to repeat after a crash:
// an attachment is written to the ledger before anything is changed on the
// host, and its entry goes away only when nothing of it is left.
type Driver interface {
	// Name is what the ledger calls this driver. It never changes.
	Name() string

	// Attach connects the namespace. Asked again for a pod that is attached, it
	// returns the same result. On an error the pod is not attached; what could
	// not be taken back at once stays in the ledger for Detach or Reconcile.
	Attach(ctx context.Context, req Request) (Result, error)

	// Detach releases what Attach gave. The namespace may be gone already; if
	// it is not, the caller drops it right afterwards. An id that nobody
	// attached is no error. After an error the caller may try again.
	Detach(ctx context.Context, id pod.ID) error

	// Check says whether the pod's network still is as Attach left it. An error
	// that wraps errdefs.ErrPrecondition says what is not in order, one that wraps
	// errdefs.ErrNotFound that the pod is not attached; any other, that it could
	// not be found out. See Inspect.
	Check(ctx context.Context, id pod.ID) error

	// Status says why pods cannot be attached now, or nil.
	Status(ctx context.Context) error

	// Reconcile releases the attachments that an earlier process left behind
	// and whose pods live denies. Those made or asked for by this process are
	// not looked at, so it may run beside Attach.
	Reconcile(ctx context.Context, live func(pod.ID) bool) error

	// Run does the driver's background work until ctx ends. The other methods
	// work without it, but addresses may be released late and changes of the
	// configuration be seen late.
	Run(ctx context.Context) error
}

// Describer is a Driver with something to tell the administrator: what it
// changed on the host, and what this host's kernel cannot do.
type Describer interface {
	// Notes returns sentences, none if all is as it should be.
	Notes() []string
}

// Purger is a Driver that leaves shared things on the host, such as a bridge.
type Purger interface {
	// Purge removes them. It wraps errdefs.ErrPrecondition while pods are attached.
	Purge(ctx context.Context) error
}

// validID is the form that CNI allows for container ids. It also keeps an id
// from being a path.
var validID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.\-]{0,127}$`)

// Validate says whether a driver can do anything with the request.
func (r *Request) Validate() error {
	if !validID.MatchString(string(r.ID)) {
		return fmt.Errorf("attach pod %q: the id must be 1 to 128 letters, digits, _ . or -: %w", r.ID, errdefs.ErrInvalidArgument)
	}
	if !filepath.IsAbs(r.NetNS) {
		return fmt.Errorf("attach pod %s: network namespace path %q is not absolute: %w", r.ID, r.NetNS, errdefs.ErrInvalidArgument)
	}
	for i := range r.Ports {
		if err := validatePort(&r.Ports[i]); err != nil {
			return fmt.Errorf("attach pod %s: port mapping %d: %w", r.ID, i, err)
		}
	}
	return nil
}

func validatePort(p *pod.PortMapping) error {
	switch p.Protocol {
	case "tcp", "udp", "sctp":
	default:
		return fmt.Errorf("protocol %q is none of tcp, udp, sctp: %w", p.Protocol, errdefs.ErrInvalidArgument)
	}
	if p.HostPort != 0 && p.ContainerPort == 0 {
		return fmt.Errorf("hostPort %d has no containerPort: %w", p.HostPort, errdefs.ErrInvalidArgument)
	}
	if p.HostIP == "" {
		return nil
	}
	if _, err := netip.ParseAddr(p.HostIP); err != nil {
		return fmt.Errorf("hostIP %q is not an address: %w", p.HostIP, errdefs.ErrInvalidArgument)
	}
	return nil
}

// forLedger is the part of the request that releasing needs, and the labels: by
// them a kubelet knows its pod, should the pod's own record be lost. Annotations
// can be large and are of no use then.
func (r Request) forLedger() Request {
	return Request{ID: r.ID, Metadata: r.Metadata, NetNS: r.NetNS, Ports: r.Ports, Labels: r.Labels}
}
