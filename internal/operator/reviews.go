package operator

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/operator/containerruntime"
	"fairlead.run/internal/operator/options"
	"fairlead.run/internal/operator/plugin"
	"fairlead.run/internal/webhook/certs"
)

// How the API server of a seed finds the operator; the chart has the same names.
const (
	reviewsService = "fairlead-operator-webhook"
	reviewsSecret  = "fairlead-operator-certificate"
	reviewsConfig  = "fairlead-operator"
	reviewsPath    = "/mutate-operatingsystemconfigs"
)

// reviews is what the API server of a seed asks before an OperatingSystemConfig is
// written. Each replica answers, whether it leads or not.
type reviews struct {
	certs  *certs.Managed
	server webhook.Server
}

// newReviews makes it, without a certificate until it is run.
func newReviews(to *rest.Config, o options.Options, l *slog.Logger) (*reviews, error) {
	client, err := cluster.NewClient(to)
	if err != nil {
		return nil, err
	}
	host, text, err := net.SplitHostPort(o.Webhook)
	if err != nil {
		return nil, fmt.Errorf("read the address %s of the webhook: %w", o.Webhook, err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("read the port of the webhook: %w", err)
	}
	own := certs.NewManaged(client, certs.Place{
		Namespace: o.Namespace, Secret: reviewsSecret, Mutating: reviewsConfig,
		Hosts: []string{reviewsService + "." + o.Namespace + ".svc", reviewsService + "." + o.Namespace},
	}, l)
	server := webhook.NewServer(webhook.Options{
		Host: host, Port: port, TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.GetCertificate = own.Certificate }},
	})
	return &reviews{own, draining{server, drain}}, nil
}

// drain is how long a replica that is told to end still answers: API servers take a
// moment to hear that it is off the Service, and store what it does not answer as it is.
const drain = 5 * time.Second

// draining is a server that goes on for some time when it is told to end.
type draining struct {
	webhook.Server
	time time.Duration
}

// Start serves until some time after the end of ctx.
func (d draining) Start(ctx context.Context) error {
	base, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-base.Done():
		case <-time.After(d.time):
			end()
		}
	})
	defer stop()
	return d.Server.Start(base)
}

// addTo has a manager serve it, and be ready once API servers believe it.
func (r *reviews) addTo(m manager.Manager, set plugin.Set) error {
	m.GetWebhookServer().Register(reviewsPath, &webhook.Admission{Handler: containerruntime.NewAdmission(m.GetClient(), set)})
	if err := m.AddReadyzCheck("webhook", func(*http.Request) error { return r.certs.Ready() }); err != nil {
		return fmt.Errorf("add the check of the webhook: %w", err)
	}
	return m.Add(r)
}

// NeedLeaderElection says that it does not wait for it.
func (r *reviews) NeedLeaderElection() bool { return false }

// Start keeps the certificate up to date until ctx ends.
func (r *reviews) Start(ctx context.Context) error { return r.certs.Run(ctx) }
