package certificates

import (
	"crypto/tls"
	"fmt"
	"sync"
	"time"

	"fairlead.run/internal/node/lasting"
)

// Files is a serving certificate that others put into two files, and renew there. What of the
// Asker is used is who is told, and the metrics.
type Files struct {
	Asker
	certificate, key string

	mu   sync.Mutex
	has  *tls.Certificate
	told lasting.Failure // why a newer one is not used
}

// ServingNotRead is the reason of an event of the node.
const ServingNotRead = "ServingCertificateNotRead"

// NewFiles reads the files, which must be right.
func NewFiles(a Asker, certificate, key string) (*Files, error) {
	f := &Files{Asker: a, certificate: certificate, key: key}
	has, err := f.read()
	if err != nil {
		return nil, err
	}
	f.has = has
	return f, nil
}

func (f *Files) read() (*tls.Certificate, error) {
	has, err := tls.LoadX509KeyPair(f.certificate, f.key)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of the node API from %s and %s: %w", f.certificate, f.key, err)
	}
	f.Metrics.Serving(has.Leaf)
	return &has, nil
}

// GetCertificate is for a tls.Config. The files are read each time, as they may have been renewed.
// While they are not right, as between the two that are written, the one before serves on.
func (f *Files) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	has, err := f.read()
	if err == nil {
		f.has = has
		f.told.Over()
	} else if why := err.Error(); f.told.Tell(why) {
		if f.Warn != nil {
			f.Warn(ServingNotRead, fmt.Sprintf("The node API has the certificate that ends at %s until a newer one can be read, which is tried with each connection: %s; put a certificate and its key there, in PEM", f.has.Leaf.NotAfter.UTC().Format(time.RFC3339), why))
		}
	}
	return f.has, nil
}
