package webhook_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority signs clients.
type authority struct {
	t    *testing.T
	leaf *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t}
	c := a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	a.leaf, a.key = c.Leaf, c.PrivateKey.(*ecdsa.PrivateKey)
	return a
}

func (a *authority) sign(template *x509.Certificate) *tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(1), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, by := a.leaf, a.key
	if parent == nil {
		parent, by = template, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		a.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(raw)
	if err != nil {
		a.t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key, Leaf: leaf}
}

func (a *authority) client(name string, usage x509.ExtKeyUsage) *tls.Certificate {
	return a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{usage}})
}

// With an authority for clients only API servers are answered, and nobody else
// can take places of quotas or have bodies read.
func TestClients(t *testing.T) {
	own, other := newAuthority(t), newAuthority(t)
	o := options()
	o.ClientCA, o.ClientNames = filepath.Join(t.TempDir(), "ca.crt"), []string{"kube-apiserver"}
	if err := os.WriteFile(o.ClientCA, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.leaf.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, cluster(t), o)
	reviews, _ := r.Addresses()
	roots := r.client.Transport.(*http.Transport).TLSClientConfig.RootCAs
	for name, test := range map[string]struct {
		cert     *tls.Certificate
		answered bool
	}{
		"the API server":    {own.client("kube-apiserver", x509.ExtKeyUsageClientAuth), true},
		"nobody":            {nil, false},
		"another name":      {own.client("somebody", x509.ExtKeyUsageClientAuth), false},
		"another authority": {other.client("kube-apiserver", x509.ExtKeyUsageClientAuth), false},
		"a server":          {own.client("kube-apiserver", x509.ExtKeyUsageServerAuth), false},
	} {
		t.Run(name, func(t *testing.T) {
			transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots}}
			defer transport.CloseIdleConnections()
			if test.cert != nil {
				transport.TLSClientConfig.Certificates = []tls.Certificate{*test.cert}
			}
			resp, err := (&http.Client{Transport: transport}).Post("https://"+reviews.String()+"/validate-pods", jsonType, bytes.NewReader(reviewOf(t, creating(t, pod()))))
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			if (err == nil) != test.answered {
				t.Errorf("answered: %v", err)
			}
		})
	}
}
