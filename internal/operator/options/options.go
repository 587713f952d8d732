// Package options is how fairlead operator is told what to do. It is apart from the
// operator, so that the command line of fairlead knows the flags without linking it.
package options

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Program is what runs the operator. It is one of its own: what it is built on would
// cost every process of fairlead memory.
const Program = "fairlead-operator"

// Options are those of an operator.
type Options struct {
	Kubeconfig, Context string
	// Namespace is the operator's own, of ContainerRuntimes and the installer's pods.
	Namespace string
	// Account is the service account of the installer's pods.
	Account string
	// Gardener has it act in a seed, for all namespaces, and touch no nodes.
	Gardener        bool
	Webhook         string // address for the API server of a seed; "0" for none
	Health, Metrics string // addresses; "0" for none
	Elect           bool   // lead only while no other replica does
	LogLevel        string
	LogFormat       string
}

// Register adds the flags, with their defaults.
func (o *Options) Register(flags *pflag.FlagSet) {
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "file that says which API server to talk to (default $KUBECONFIG, ~/.kube/config, or the service account of the pod)")
	flags.StringVar(&o.Context, "context", "", "context of the kubeconfig (default its current one)")
	flags.StringVar(&o.Namespace, "namespace", "fairlead-system", "the operator's own namespace, in which ContainerRuntimes and the installer's pods are")
	flags.StringVar(&o.Account, "installer-account", "fairlead-installer", "service account of the installer's pods, which get no token of it")
	flags.BoolVar(&o.Gardener, "gardener", false, "act in a seed of Gardener's: put runtimes into OperatingSystemConfigs, and touch no nodes")
	flags.StringVar(&o.Webhook, "webhook", ":9443", "with --gardener: address for API servers that ask before an OperatingSystemConfig is written, with TLS; 0 for none")
	flags.StringVar(&o.Health, "health", ":8081", "address for /livez and /readyz; 0 for none")
	flags.StringVar(&o.Metrics, "metrics", ":8080", "address for /metrics; 0 for none")
	flags.BoolVar(&o.Elect, "leader-elect", true, "act only while no other replica does, by a Lease in the namespace")
	flags.StringVar(&o.LogLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&o.LogFormat, "log-format", "json", "json or text")
}

// Validate says everything that is wrong, by flags.
func (o *Options) Validate() error {
	var faults []error
	for _, f := range []struct {
		flag, value string
		check       func(string) []string
	}{
		{"namespace", o.Namespace, validation.IsDNS1123Label},
		{"installer-account", o.Account, validation.IsDNS1123Subdomain},
		{"webhook", o.Webhook, address},
		{"health", o.Health, address},
		{"metrics", o.Metrics, address},
		{"log-level", o.LogLevel, oneOf("debug", "info", "warn", "error")},
		{"log-format", o.LogFormat, oneOf("json", "text")},
	} {
		for _, why := range f.check(f.value) {
			faults = append(faults, fmt.Errorf("--%s %q: %s", f.flag, f.value, why))
		}
	}
	return errors.Join(faults...)
}

func address(a string) []string {
	if a == "0" {
		return nil
	}
	if _, _, err := net.SplitHostPort(a); err != nil {
		return []string{err.Error()}
	}
	return nil
}

func oneOf(words ...string) func(string) []string {
	return func(s string) []string {
		if slices.Contains(words, s) {
			return nil
		}
		return []string{fmt.Sprintf("is not one of %v", words)}
	}
}
