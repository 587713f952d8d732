package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead.run/internal/errdefs"
)

// Clients are who may ask: whoever has a certificate by an authority in a file.
type Clients struct {
	file  string
	names []string // one of them has to be the certificate's; none allows all
	log   *slog.Logger

	mu   sync.Mutex
	text []byte
	pool *x509.CertPool
}

// NewClients reads the file, which has certificates of authorities in PEM.
func NewClients(file string, names []string, log *slog.Logger) (*Clients, error) {
	c := &Clients{file: file, names: names, log: log}
	return c, c.reload()
}

// Run reads the file again and again until ctx ends. What is broken leaves what
// was there.
func (c *Clients) Run(ctx context.Context) error {
	told := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookEvery):
		}
		err := c.reload()
		if err != nil && told != err.Error() {
			c.log.Warn("cannot read again by whom clients are signed, and go on with what was there", "error", err)
		}
		told = fmt.Sprint(err)
	}
}

func (c *Clients) reload() error {
	text, err := os.ReadFile(c.file)
	if err != nil {
		return fmt.Errorf("read the authority of clients: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pool != nil && bytes.Equal(text, c.text) {
		return nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return fmt.Errorf("read the authority of clients: %s has no certificate in PEM: %w", c.file, errdefs.ErrInvalidArgument)
	}
	c.text, c.pool = text, pool
	c.log.Info("ask clients for a certificate", "authority", c.file, "names", strings.Join(c.names, ","))
	return nil
}

// Verify is for tls.Config.VerifyConnection: that of a server which asks for any
// certificate, as the authority may be another for the next connection.
func (c *Clients) Verify(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return fmt.Errorf("verify a client: it has no certificate: %w", errdefs.ErrInvalidArgument)
	}
	c.mu.Lock()
	o := x509.VerifyOptions{Roots: c.pool, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	c.mu.Unlock()
	for _, between := range s.PeerCertificates[1:] {
		o.Intermediates.AddCert(between)
	}
	leaf := s.PeerCertificates[0]
	if _, err := leaf.Verify(o); err != nil {
		return fmt.Errorf("verify a client: %w", err)
	}
	if name := leaf.Subject.CommonName; len(c.names) > 0 && !slices.Contains(c.names, name) {
		return fmt.Errorf("verify a client: its certificate is for %q, and not for one of %s: %w", name, strings.Join(c.names, ", "), errdefs.ErrInvalidArgument)
	}
	return nil
}
