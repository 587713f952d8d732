package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"sync"
	"time"

	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/node/lasting"
)

// selfSignedLife is that of a certificate that nobody vouches for.
const selfSignedLife = 365 * 24 * time.Hour

// Self is a serving certificate that nobody vouches for, kept in a folder. It is made anew
// when it is due, also while it serves.
type Self struct {
	Asker // of whom it has the folder, the log and who is told
	names []string
	ips   []net.IP

	mu    sync.Mutex
	has   *tls.Certificate
	tried time.Time       // when it could not be made anew
	told  lasting.Failure // why, by Warn
}

// ServingNotRenewed is the reason of an event of the node.
const ServingNotRenewed = "ServingCertificateNotRenewed"

// NewSelf makes one for these names and addresses. Nobody is asked for it.
func NewSelf(a Asker, names []string, ips []net.IP) (*Self, error) {
	s := &Self{Asker: a, names: names, ips: ips}
	has, err := SelfSigned(a.Folder, names, ips, time.Now())
	if err == nil {
		s.Metrics.Serving(has.Leaf)
	}
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
	has, err := SelfSigned(s.Folder, s.names, s.ips, now)
	if err != nil {
		s.tried = now
		s.Metrics.failed(true)
		s.tell(err)
		return s.has, nil
	}
	s.Log.Info("the node API has a new certificate", "until", has.Leaf.NotAfter)
	s.Metrics.Serving(has.Leaf)
	s.Metrics.rotated(s.has.Leaf)
	s.has = has
	s.told.Over()
	return has, nil
}

// tell tells why there is no new one, and again now and then as long as it is the same.
func (s *Self) tell(err error) {
	if s.Warn == nil || !s.told.Tell(err.Error()) {
		return
	}
	s.Warn(ServingNotRenewed, fmt.Sprintf("No new certificate of the node API can be made, which is tried again each minute; the present one ends at %s, and is refused from then on by whoever looks at that: %s%s",
		s.has.Leaf.NotAfter.UTC().Format(time.RFC3339), err, hostpath.Advice(err)))
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
