package cli

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/resident"
	"fairlead.run/internal/webhook"
	"fairlead.run/pkg/runtimeclass"
)

// webhookGarbage is how much garbage there may be for what is in use, in percent,
// until the cluster has been read. The caches are large and stay; less than half of
// Go's default saves 10 MB with 5,000 classes. $GOGC is another choice, which then
// stays, and $GOMEMLIMIT holds as well.
const webhookGarbage = 40

// webhookFlags are those of webhook that are no options of the server.
type webhookFlags struct {
	kubeconfig, context string
	logFormat, logLevel string
}

func (a *app) webhookCommand() *cobra.Command {
	o := webhook.Defaults()
	var f webhookFlags
	cmd := &cobra.Command{
		Use:   "webhook",
		Short: "Serve the admission webhook of a cluster, for RuntimeClasses and their policies",
		Long: "Serve the admission webhook of a cluster until a signal ends it: it puts RuntimeClasses into pods, holds\n" +
			"pods against RuntimeClassPolicies, and looks over classes, policies and the templates of workloads.\n" +
			"deploy/webhook has the manifests, and docs/webhook.md says how to run it.\n\n" +
			"It makes its certificate itself, in a Secret that all replicas share, and puts the authority into its\n" +
			"webhook configurations; or it serves with --cert-dir, and whoever makes that does the rest.\n\n" +
			"It needs no daemon and reads no configuration file. It is no part of a node.",
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return usageError{err}
			}
			log, err := a.loggerOf(f.logLevel, f.logFormat)
			if err != nil {
				return usageError{err}
			}
			config, err := cluster.Config(f.kubeconfig, f.context)
			if err != nil {
				return err
			}
			resident.Grow(webhookGarbage)
			server, err := webhook.Open(config, o, log)
			if err != nil {
				return err
			}
			return server.Run(cmd.Context())
		},
	}
	webhookOptions(cmd, &o)
	flags := cmd.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "file that says which API server to talk to (default $KUBECONFIG, ~/.kube/config, or the service account of the pod)")
	flags.StringVar(&f.context, "context", "", "context of the kubeconfig (default its current one)")
	flags.StringVar(&f.logFormat, "log-format", "json", "json or text")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// webhookOptions adds a flag for each option of the server.
func webhookOptions(cmd *cobra.Command, o *webhook.Options) {
	flags := cmd.Flags()
	flags.StringVar(&o.Listen, "listen", o.Listen, "address for API servers, with TLS")
	flags.StringVar(&o.Health, "health", o.Health, "address for /livez, /readyz and /metrics, without TLS")
	flags.StringVar(&o.CertDir, "cert-dir", o.CertDir, "folder with tls.crt and tls.key to serve with; they are read again when they change (default: make them)")
	flags.StringVar(&o.Namespace, "namespace", o.Namespace, "the webhook's own namespace, which is exempt")
	flags.StringVar(&o.Service, "service", o.Service, "name of the Service that API servers call, in that namespace")
	flags.StringVar(&o.Secret, "secret", o.Secret, "name of the Secret to keep certificates in, in that namespace")
	flags.StringArrayVar(&o.ServeAs, "serve-as", nil, "a further name or address that the certificate is to be for; may be given more than once")
	flags.StringVar(&o.ClientCA, "client-ca", o.ClientCA, "file with the authorities in PEM by which certificates of API servers are verified (default: answer whoever connects)")
	flags.StringArrayVar(&o.ClientNames, "client-name", nil, "common name that the certificate of an API server may have; may be given more than once (default: any by --client-ca)")
	flags.StringVar(&o.Mutating, "mutating-configuration", o.Mutating, "MutatingWebhookConfiguration to put the authority into; empty for none")
	flags.StringVar(&o.Validating, "validating-configuration", o.Validating, "ValidatingWebhookConfiguration to put the authority into; empty for none")
	flags.BoolVar(&o.Garden, "garden", false, "look at Gardener's shoots, and at nothing of its own cluster: serve /validate-shoots alone")
	flags.StringVar(&o.Capability, "virtualization-capability", o.Capability, "with --garden: NAME=VALUE of the capability by which machine types of a CloudProfile can run virtual machines, as kata-containers needs; empty for none")
	flags.StringArrayVar(&o.Exempt, "exempt", o.Exempt, "namespace whose pods are admitted as they are; may be given more than once")
	flags.DurationVar(&o.Drain, "drain", o.Drain, "how long to go on serving after the order to end")
	legacyFlags(cmd, &o.Legacy)
}

// legacyFlags say what annotations from before RuntimeClass stand for.
func legacyFlags(cmd *cobra.Command, l *runtimeclass.Legacy) {
	add := func(into *string, flag, annotation string) {
		cmd.Flags().StringVar(into, flag, "", "RuntimeClass that the old annotation "+annotation+" stands for (default: none, and a warning)")
	}
	add(&l.CRIOUntrusted, "legacy-crio-untrusted", `io.kubernetes.cri-o.TrustedSandbox: "false"`)
	add(&l.ContainerdUntrusted, "legacy-containerd-untrusted", `io.kubernetes.cri.untrusted-workload: "true"`)
	add(&l.FraktiOSContainer, "legacy-frakti-os-container", `runtime.frakti.alpha.kubernetes.io/OSContainer: "true"`)
	add(&l.FraktiUnikernel, "legacy-frakti-unikernel", `runtime.frakti.alpha.kubernetes.io/Unikernel: "true"`)
	add(&l.WindowsHyperV, "legacy-windows-hyperv", `experimental.windows.kubernetes.io/isolation-type: hyperv`)
}

// loggerOf is the log of a command that has no configuration file.
func (a *app) loggerOf(level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(strings.ToUpper(level))); err != nil {
		return nil, fmt.Errorf("--log-level %s is not one of debug, info, warn, error", level)
	}
	options := &slog.HandlerOptions{Level: l}
	switch format {
	case "json":
		return slog.New(slog.NewJSONHandler(a.err, options)), nil
	case "text":
		return slog.New(slog.NewTextHandler(a.err, options)), nil
	}
	return nil, fmt.Errorf("--log-format %s is not one of json, text", format)
}
