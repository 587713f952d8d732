package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/errdefs"
)

// Mounted serves with what is in a folder: tls.crt and tls.key, as a mounted
// Secret of type kubernetes.io/tls has them. Who writes them also tells API
// servers whom to believe.
type Mounted struct {
	folder string
	log    *slog.Logger

	mu        sync.Mutex
	cert, key []byte
	serving   *tls.Certificate
}

// NewMounted reads the folder, which must have a certificate already.
func NewMounted(folder string, log *slog.Logger) (*Mounted, error) {
	m := &Mounted{folder: folder, log: log}
	if err := m.reload(); err != nil {
		return nil, err
	}
	return m, nil
}

// Run reads the folder again and again until ctx ends: a mounted Secret changes
// by links that are replaced. What is broken leaves what was there.
func (m *Mounted) Run(ctx context.Context) error {
	told := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookEvery):
		}
		err := m.reload()
		if err == nil {
			told = ""
			continue
		}
		if told != err.Error() {
			told = err.Error()
			m.log.Warn("cannot read the certificate again, and go on with the one from before", "error", err)
		}
	}
}

func (m *Mounted) reload() error {
	cert, err := os.ReadFile(filepath.Join(m.folder, corev1.TLSCertKey))
	if err != nil {
		return fmt.Errorf("read certificate: %w", err)
	}
	key, err := os.ReadFile(filepath.Join(m.folder, corev1.TLSPrivateKeyKey))
	if err != nil {
		return fmt.Errorf("read the key of the certificate: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.serving != nil && bytes.Equal(cert, m.cert) && bytes.Equal(key, m.key) {
		return nil
	}
	both, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("read certificate %s: %w", filepath.Join(m.folder, corev1.TLSCertKey), err)
	}
	m.cert, m.key, m.serving = cert, key, &both
	m.log.Info("serve with a certificate", "expires", both.Leaf.NotAfter, "folder", m.folder)
	return nil
}

// Certificate is for tls.Config.
func (m *Mounted) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.serving, nil
}

// Ready says why no API server can believe the certificate.
func (m *Mounted) Ready() error {
	if end := m.Expires(); !time.Now().Before(end) {
		return fmt.Errorf("the certificate in %s ended at %s; renew it: %w", m.folder, end.Format(time.RFC3339), errdefs.ErrUnavailable)
	}
	return nil
}

// Expires is when the certificate ends.
func (m *Mounted) Expires() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.serving.Leaf.NotAfter
}
