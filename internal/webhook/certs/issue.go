package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

// How long certificates hold. They begin earlier than now, for clocks that are
// behind.
const (
	authorityLife = 2 * 365 * 24 * time.Hour
	servingLife   = 90 * 24 * time.Hour
	backdated     = time.Hour
)

// pair is a certificate and its key, as they are and as PEM.
type pair struct {
	leaf     *x509.Certificate
	key      *ecdsa.PrivateKey
	cert     []byte // PEM
	keyBlock []byte // PEM
}

// readPair is nil for what is not there.
func readPair(cert, key []byte) (*pair, error) {
	if len(cert) == 0 && len(key) == 0 {
		return nil, nil
	}
	both, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	own, ok := both.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("its key is not one of ECDSA, as those that are made here")
	}
	return &pair{leaf: both.Leaf, key: own, cert: cert, keyBlock: key}, nil
}

// served is the pair as a TLS server wants it.
func (p *pair) served() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{p.leaf.Raw}, PrivateKey: p.key, Leaf: p.leaf}
}

// born is when the pair was made.
func (p *pair) born() time.Time { return p.leaf.NotBefore.Add(backdated) }

// old says that a pair is due to be replaced: two thirds of its life are over, or
// the clock was wrong when it was made.
func (p *pair) old(now time.Time) bool {
	life := p.leaf.NotAfter.Sub(p.leaf.NotBefore)
	return now.After(p.leaf.NotBefore.Add(life*2/3)) || now.Before(p.leaf.NotBefore)
}

// valid says that whoever believes in the pair's authority takes it at that time.
func valid(p *pair, now time.Time) bool {
	return p != nil && now.After(p.leaf.NotBefore) && now.Before(p.leaf.NotAfter)
}

// newAuthority makes an authority that signs for itself.
func newAuthority(now time.Time) (*pair, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "fairlead webhook authority " + now.UTC().Format(time.RFC3339)},
		NotBefore:             now.Add(-backdated),
		NotAfter:              now.Add(authorityLife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	p, err := sign(template, nil)
	if err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	return p, nil
}

// newServing makes a certificate for these names and addresses.
func newServing(hosts []string, by *pair, now time.Time) (*pair, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "fairlead webhook"},
		NotBefore:             now.Add(-backdated),
		NotAfter:              now.Add(servingLife),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if by.leaf.NotAfter.Before(template.NotAfter) {
		template.NotAfter = by.leaf.NotAfter
	}
	template.DNSNames, template.IPAddresses = split(hosts)
	p, err := sign(template, by)
	if err != nil {
		return nil, fmt.Errorf("make a serving certificate: %w", err)
	}
	return p, nil
}

// sign makes a key for a certificate and signs it, by itself if by is nil.
func sign(template *x509.Certificate, by *pair) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, err
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.leaf, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, err
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return readPair(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}))
}

// split tells names from addresses, each sorted.
func split(hosts []string) (names []string, addresses []net.IP) {
	for _, h := range slices.Sorted(slices.Values(hosts)) {
		if ip := net.ParseIP(h); ip != nil {
			addresses = append(addresses, ip)
			continue
		}
		names = append(names, h)
	}
	return slices.Compact(names), addresses
}

// isFor says that a certificate is for these hosts, and was signed by that pair.
func (p *pair) isFor(hosts []string, by *pair) bool {
	names, addresses := split(hosts)
	return slices.Equal(names, p.leaf.DNSNames) &&
		slices.EqualFunc(addresses, p.leaf.IPAddresses, net.IP.Equal) &&
		p.leaf.CheckSignatureFrom(by.leaf) == nil
}
