package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority signs the certificates of a cluster, into files in a folder.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
}

// newAuthority makes ca.crt, ca.key and the key of the service accounts, sa.key.
func newAuthority(dir string) (*authority, error) {
	a := &authority{dir: dir}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if _, err := a.newKey("sa"); err != nil {
		return nil, err
	}
	template := x509.Certificate{
		Subject: pkix.Name{CommonName: "e2e"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	return a, a.sign("ca", template)
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) newKey(name string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, os.WriteFile(a.file(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// sign makes NAME.key and NAME.crt. The first certificate is the authority's own. Of a
// template that does not say when it holds, it does for two days.
func (a *authority) sign(name string, template x509.Certificate) error {
	key, err := a.newKey(name)
	if err != nil {
		return fmt.Errorf("make the key of %s: %w", name, err)
	}
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(48*time.Hour)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		return err
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = &template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, parent, key.Public(), signer)
	if err != nil {
		return fmt.Errorf("sign the certificate of %s: %w", name, err)
	}
	if a.cert == nil {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			return err
		}
		a.key = key
	}
	return os.WriteFile(a.file(name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)
}

// server makes the certificate of a server, which may be a client, too.
func (a *authority) server(name string, ips []net.IP, names ...string) error {
	return a.sign(name, x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: ips, DNSNames: names,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
}

const kubeconfig = `apiVersion: v1
kind: Config
clusters:
- name: e2e
  cluster: {server: %q, certificate-authority: %q}
users:
- name: user
  user: {client-certificate: %q, client-key: %q}
contexts:
- name: e2e
  context: {cluster: e2e, user: user}
current-context: e2e
`

// client makes the certificate of a user and NAME.kubeconfig, and returns the
// path of that.
func (a *authority) client(name, user, group string) (string, error) {
	subject := pkix.Name{CommonName: user}
	if group != "" {
		subject.Organization = []string{group}
	}
	err := a.sign(name, x509.Certificate{
		Subject: subject, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return "", err
	}
	path := a.file(name + ".kubeconfig")
	text := fmt.Sprintf(kubeconfig, apiServer, a.file("ca.crt"), a.file(name+".crt"), a.file(name+".key"))
	return path, os.WriteFile(path, []byte(text), 0o600)
}
