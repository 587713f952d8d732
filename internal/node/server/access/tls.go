package access

import (
	"crypto/tls"
	"errors"
	"fmt"
)

// TLS says how the node API is served.
type TLS struct {
	// Certificate is asked with each handshake, so that a new one is used from
	// then on.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// MinVersion is VersionTLS12 or VersionTLS13; "" is the first.
	MinVersion string
	// CipherSuites are names, for TLS 1.2 alone; none means Go's choice.
	CipherSuites []string
}

// Config makes the configuration of a listener. Certificates of clients are asked
// for and not checked: the Gate checks them, with the bundle of that moment.
func (t TLS) Config() (*tls.Config, error) {
	if t.Certificate == nil {
		return nil, errors.New("configure TLS of the node API: there is no certificate")
	}
	c := &tls.Config{GetCertificate: t.Certificate, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	switch t.MinVersion {
	case "", "VersionTLS12":
	case "VersionTLS13":
		c.MinVersion = tls.VersionTLS13
	default:
		return nil, fmt.Errorf("configure TLS of the node API: %q is no version that is allowed here; use VersionTLS12 or VersionTLS13", t.MinVersion)
	}
	known := map[string]uint16{}
	for _, s := range tls.CipherSuites() {
		known[s.Name] = s.ID
	}
	for _, name := range t.CipherSuites {
		id, ok := known[name]
		if !ok {
			return nil, fmt.Errorf("configure TLS of the node API: %q is no cipher suite, or not a safe one", name)
		}
		c.CipherSuites = append(c.CipherSuites, id)
	}
	return c, nil
}
