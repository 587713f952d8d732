package access

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"os"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// credentialID is the key under which the API server, too, tells which
// certificate somebody had.
const credentialID = "authentication.kubernetes.io/credential-id"

// Bundle is a file of CA certificates that sign those of clients. It is looked
// at with each use and read again when it has changed.
type Bundle struct {
	path string
	tell func(message string)

	mu   sync.Mutex
	pool *x509.CertPool
	seen os.FileInfo
	told string // the last failure of which somebody was told
}

// NewBundle reads the file, which must hold a certificate. Tell is told, once as long as it is
// the same, why a newer one is not used. It must not wait.
func NewBundle(path string, tell func(message string)) (*Bundle, error) {
	b := &Bundle{path: path, tell: tell}
	return b, b.refresh()
}

// refresh reads the file if it is another one than before.
func (b *Bundle) refresh() error {
	now, err := os.Stat(b.path)
	if err != nil {
		return fmt.Errorf("look at the CA bundle for clients: %w", err)
	}
	if b.seen != nil && os.SameFile(b.seen, now) && b.seen.ModTime().Equal(now.ModTime()) && b.seen.Size() == now.Size() {
		return nil
	}
	text, err := os.ReadFile(b.path)
	if err != nil { // and is tried again
		return fmt.Errorf("read the CA bundle for clients: %w", err)
	}
	b.seen = now
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return fmt.Errorf("read the CA bundle for clients: there is no PEM certificate in %s", b.path)
	}
	b.pool, b.told = pool, ""
	return nil
}

// current is the newest pool that could be read. A bundle that is being
// replaced, or was broken, must not lock everybody out.
func (b *Bundle) current() *x509.CertPool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.refresh(); err != nil && err.Error() != b.told {
		b.told = err.Error()
		b.tell("Client certificates are still checked with the CA bundle as it was, so that who has a newer one is refused and who should have none may get in: " + err.Error() + "; put a bundle in PEM there")
	}
	return b.pool
}

// user is whom a chain of certificates names, the client's first.
func (b *Bundle) user(chain []*x509.Certificate) (authenticationv1.UserInfo, error) {
	o := x509.VerifyOptions{Roots: b.current(), Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, c := range chain[1:] {
		o.Intermediates.AddCert(c)
	}
	c := chain[0]
	if _, err := c.Verify(o); err != nil {
		return authenticationv1.UserInfo{}, fmt.Errorf("verify the client certificate of %q: %w", c.Subject, err)
	}
	if c.Subject.CommonName == "" {
		return authenticationv1.UserInfo{}, fmt.Errorf("verify the client certificate of %q: it has no common name", c.Subject)
	}
	sum := sha256.Sum256(c.Raw)
	return authenticationv1.UserInfo{
		Username: c.Subject.CommonName,
		Groups:   append(append([]string(nil), c.Subject.Organization...), authenticated),
		Extra:    map[string]authenticationv1.ExtraValue{credentialID: {"X509SHA256=" + hex.EncodeToString(sum[:])}},
	}, nil
}
