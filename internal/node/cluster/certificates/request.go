package certificates

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"reflect"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"fairlead.run/internal/cluster"
)

const resource = "certificatesigningrequests"

// patience is how long somebody has to allow a request, before another is made.
// Requests that nobody looks at are forgotten by the cluster after a day.
const patience = time.Hour

func subject(node string) pkix.Name {
	return pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}
}

// request asks the cluster as who has that client, and keeps what it gives.
func (m *Manager) request(ctx context.Context, template *x509.CertificateRequest, as func() (*cluster.Client, error)) (*tls.Certificate, error) {
	key, text, err := m.Folder.pendingKey()
	if err != nil {
		return nil, err
	}
	client, err := as()
	if err != nil {
		return nil, err
	}
	csr, err := m.csr(key, template)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	certificate, err := m.ask(ctx, client, csr, template)
	if errors.Is(err, context.DeadlineExceeded) {
		m.told.Over() // the next one is approved by another name
	}
	if errors.Is(err, errRefused) || errors.Is(err, context.DeadlineExceeded) {
		return nil, errors.Join(err, m.Folder.dropPending())
	}
	if err != nil {
		return nil, err
	}
	c, err := m.Folder.Put(certificate, text, time.Now())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("use what %s has given: %w", csr.Name, err), m.Folder.dropPending())
	}
	return c, m.Folder.dropPending()
}

// csr has a name that is the same for the same key and content: after a restart the
// request goes on.
func (m *Manager) csr(key crypto.Signer, template *x509.CertificateRequest) (*certificatesv1.CertificateSigningRequest, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate request: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	sum := sha256.Sum256(fmt.Appendf(public, "%s %v %v %v", m.Signer, template.Subject, template.DNSNames, template.IPAddresses))
	return &certificatesv1.CertificateSigningRequest{
		TypeMeta:   metav1.TypeMeta{Kind: "CertificateSigningRequest", APIVersion: certificatesv1.SchemeGroupVersion.String()},
		ObjectMeta: metav1.ObjectMeta{Name: "node-csr-" + hex.EncodeToString(sum[:16])},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: m.Signer, Usages: m.Usages,
		},
	}, nil
}

// ask makes the request, if it is not there yet, and waits for its end, or until it
// is another certificate that is needed.
func (m *Manager) ask(ctx context.Context, client *cluster.Client, csr *certificatesv1.CertificateSigningRequest, template *x509.CertificateRequest) ([]byte, error) {
	gv := certificatesv1.SchemeGroupVersion
	err := client.REST(gv).Post().Resource(resource).Body(csr).Do(ctx).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("request a certificate: %w", err)
	}
	m.asked.Store(&csr.Name)
	defer m.asked.Store(nil)
	m.Log.Info("this node waits for a certificate; allow it with kubectl certificate approve", "request", csr.Name, "signer", m.Signer)
	store, follow := cluster.Follow(client, cluster.Query{
		From: gv.WithResource(resource), Selector: fields.OneTermEqualSelector("metadata.name", csr.Name), Log: m.Log,
	}, &certificatesv1.CertificateSigningRequest{}, func(c *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest { return c })
	following, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		follow(following)
	}()
	defer func() { <-done }()
	defer cancel()
	for seen := false; ; {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for certificate request %s: nobody has approved it: %w", csr.Name, ctx.Err())
		case <-time.After(look):
			if !reflect.DeepEqual(m.Template(), template) {
				return nil, fmt.Errorf("wait for certificate request %s: the node has other names or addresses by now: %w", csr.Name, errOutdated)
			}
			m.tell("nobody has approved the request " + csr.Name + " yet; allow it with kubectl certificate approve " + csr.Name)
		case <-store.Changes():
		}
		now := store.Get(csr.Name)
		if seen = seen || now != nil; !seen { // a list may be older than the request
			continue
		}
		certificate, err := outcome(csr.Name, now)
		if certificate != nil || err != nil {
			return certificate, err
		}
	}
}

// outcome is what a request has come to; nothing, as long as it is open.
func outcome(name string, r *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	if r == nil {
		return nil, fmt.Errorf("wait for certificate request %s: somebody has deleted it: %w", name, errRefused)
	}
	approved := false
	for _, c := range r.Status.Conditions {
		switch {
		case c.Status == corev1.ConditionFalse:
		case c.Type == certificatesv1.CertificateDenied:
			return nil, fmt.Errorf("certificate request %s was denied: %s: %s: %w", name, c.Reason, c.Message, errRefused)
		case c.Type == certificatesv1.CertificateFailed:
			return nil, fmt.Errorf("certificate request %s has failed: %s: %s: %w", name, c.Reason, c.Message, errRefused)
		case c.Type == certificatesv1.CertificateApproved:
			approved = true
		}
	}
	if !approved || len(r.Status.Certificate) == 0 {
		return nil, nil
	}
	return r.Status.Certificate, nil
}
