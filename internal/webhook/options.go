package webhook

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.run/internal/operator/validate"
	"fairlead.run/internal/webhook/certs"
	"fairlead.run/pkg/runtimeclass"
)

// Options say how a webhook serves.
//
// Larger as it has a field for each flag.
type Options struct {
	Listen string // address for API servers, with TLS
	Health string // address for probes and metrics, without

	// CertDir is a folder with tls.crt and tls.key. If it is empty, certificates
	// are made and told to API servers, and the following are for that.
	CertDir string
	// Namespace is the webhook's own. It is exempt, too.
	Namespace  string
	Service    string   // in Namespace
	Secret     string   // in Namespace
	ServeAs    []string // further names and addresses by which API servers call
	Mutating   string   // name of the configuration, or "" for none
	Validating string

	// ClientCA is a file with the authorities by which API servers are known; ""
	// answers everybody who can connect. ClientNames are the common names that they
	// may have; none allows all.
	ClientCA    string
	ClientNames []string

	// Garden has it look at Gardener's shoots, and at nothing of its own cluster. Capability
	// is NAME=VALUE of what machine types there have that can run virtual machines; "" is none.
	Garden     bool
	Capability string

	Legacy runtimeclass.Legacy
	// Exempt are namespaces whose pods are admitted as they are, should a
	// configuration ask about them.
	Exempt []string
	// Drain is how long it goes on serving after it is told to end, until nobody
	// sends requests to it any more.
	Drain time.Duration
}

// Defaults are the options that deploy/webhook goes by.
func Defaults() Options {
	return Options{
		Listen: ":9443", Health: ":8080", Namespace: "fairlead-system", Service: "fairlead-webhook", Secret: "fairlead-webhook-certificate",
		Mutating: "fairlead-webhook", Validating: "fairlead-webhook", Exempt: []string{"kube-system"}, Drain: 5 * time.Second,
		Capability: validate.DefaultCapability,
	}
}

// Validate says everything that is wrong with the options, by their flags.
func (o Options) Validate() error {
	var faults []error
	bad := func(flag, value string, why any) {
		faults = append(faults, fmt.Errorf("--%s %q: %v", flag, value, why))
	}
	for _, f := range []struct{ flag, address string }{{"listen", o.Listen}, {"health", o.Health}} {
		if _, _, err := net.SplitHostPort(f.address); err != nil {
			bad(f.flag, f.address, err)
		}
	}
	for _, f := range o.names() {
		if f.value == "" && f.optional {
			continue
		}
		for _, why := range f.check(f.value) {
			bad(f.flag, f.value, why)
		}
	}
	for _, host := range o.ServeAs {
		if net.ParseIP(host) == nil && len(validation.IsDNS1123Subdomain(host)) > 0 {
			bad("serve-as", host, "is neither an IP address nor a name of DNS")
		}
	}
	if len(o.ClientNames) > 0 && o.ClientCA == "" {
		bad("client-name", strings.Join(o.ClientNames, ","), "needs --client-ca, by which it is verified")
	}
	if _, err := validate.ParseCapability(o.Capability); err != nil {
		bad("virtualization-capability", o.Capability, err)
	}
	if o.Drain < 0 || o.Drain > time.Minute {
		bad("drain", o.Drain.String(), "is not between 0s and 1m")
	}
	return errors.Join(faults...)
}

// name is an option that names an object.
type name struct {
	flag, value string
	optional    bool
	check       func(string) []string
}

func (o Options) names() []name {
	label, subdomain := validation.IsDNS1123Label, validation.IsDNS1123Subdomain
	out := []name{
		{"namespace", o.Namespace, false, label},
		{"service", o.Service, false, label},
		{"secret", o.Secret, false, subdomain},
		{"mutating-configuration", o.Mutating, true, subdomain},
		{"validating-configuration", o.Validating, true, subdomain},
		{"legacy-crio-untrusted", o.Legacy.CRIOUntrusted, true, subdomain},
		{"legacy-containerd-untrusted", o.Legacy.ContainerdUntrusted, true, subdomain},
		{"legacy-frakti-os-container", o.Legacy.FraktiOSContainer, true, subdomain},
		{"legacy-frakti-unikernel", o.Legacy.FraktiUnikernel, true, subdomain},
		{"legacy-windows-hyperv", o.Legacy.WindowsHyperV, true, subdomain},
	}
	for _, namespace := range o.Exempt {
		out = append(out, name{"exempt", namespace, false, label})
	}
	return out
}

// place is where the certificates are that are made by the webhook.
func (o Options) place() certs.Place {
	hosts := []string{o.Service + "." + o.Namespace + ".svc", o.Service + "." + o.Namespace}
	return certs.Place{
		Namespace: o.Namespace, Secret: o.Secret, Hosts: append(hosts, o.ServeAs...),
		Mutating: o.Mutating, Validating: o.Validating,
	}
}
