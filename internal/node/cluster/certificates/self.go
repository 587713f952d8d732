package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"sync"
	"time"
)

// selfSignedLife is that of a certificate that nobody vouches for.
const selfSignedLife = 365 * 24 * time.Hour

// Self is a serving certificate that nobody vouches for, kept in a folder. It is made anew
// when it is due, also while it serves.
type Self struct {
	folder Folder
	names  []string
	ips    []net.IP
	log    *slog.Logger

	mu    sync.Mutex
	has   *tls.Certificate
	tried time.Time // when it could not be made anew
}

// NewSelf makes one for these names and addresses.
func NewSelf(folder Folder, names []string, ips []net.IP, log *slog.Logger) (*Self, error) {
	s := &Self{folder: folder, names: names, ips: ips, log: log}
	has, err := SelfSigned(folder, names, ips, time.Now())
	s.has = has
	return s, err
}

// GetCertificate is for a tls.Config. When there can be no new one, the old one serves on:
// whoever takes a certificate that nobody vouches for may take one that has ended.
func (s *Self) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Before(due(s.has.Leaf)) || now.Sub(s.tried) < look {
		return s.has, nil
	}
	has, err := SelfSigned(s.folder, s.names, s.ips, now)
	if err != nil {
		s.tried = now
		s.log.Warn("the node API has a certificate that is due, and no new one can be made", "until", s.has.Leaf.NotAfter, "error", err)
		return s.has, nil
	}
	s.log.Info("the node API has a new certificate", "until", has.Leaf.NotAfter)
	s.has = has
	return has, nil
}

// SelfSigned is such a certificate: the one in the folder, or a new one if that is due or
// for other names.
func SelfSigned(folder Folder, names []string, ips []net.IP, now time.Time) (*tls.Certificate, error) {
	wants := &x509.CertificateRequest{DNSNames: names, IPAddresses: ips}
	if len(names) > 0 {
		wants.Subject.CommonName = names[0]
	}
	if has, err := folder.Current(); err == nil && now.Before(due(has.Leaf)) && covers(has.Leaf, wants) {
		return has, nil
	}
	if err := os.MkdirAll(folder.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of certificates: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: wants.Subject, DNSNames: names, IPAddresses: ips,
		NotBefore: now.Add(-time.Minute), NotAfter: now.Add(selfSignedLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate: %w", err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return folder.Put(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), now)
}
