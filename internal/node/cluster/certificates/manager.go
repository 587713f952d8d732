package certificates

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"sync/atomic"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/cluster/pace"
	"fairlead.run/internal/node/lasting"
)

// How often it is looked whether a certificate is due, by a clock that may jump.
const look = time.Minute

// Config says which certificate a Manager is for.
type Config struct {
	Folder Folder
	Client func() (*cluster.Client, error) // who asks for it
	Begin  func() (*cluster.Client, error) // see Asker
	Signer string
	Usages []certificatesv1.KeyUsage
	// Template is what the certificate must say: subject, names, addresses. It is
	// nil as long as that is not known.
	Template func() *x509.CertificateRequest
	// Warn tells by an event of the node why it has no certificate, once as long as it is
	// the same. It must not wait. Nil tells nobody.
	Warn    func(reason, message string)
	Metrics *Metrics // nil counts nothing
	Log     *slog.Logger
}

// Asker is the node that asks for a certificate.
type Asker struct {
	Node   string
	Folder Folder
	Client func() (*cluster.Client, error)
	// Begin is who may ask for a client certificate in the place of a node whose own has ended, as
	// while the machine slept: the cluster does not know the node any more. Nil is nobody.
	Begin func() (*cluster.Client, error)
	Warn  func(reason, message string) // see Config
	// Metrics may be nil.
	Metrics *Metrics
	Log     *slog.Logger
}

// Manager gets one certificate, and the next before it ends.
type Manager struct {
	Config
	current atomic.Pointer[tls.Certificate]
	asked   atomic.Pointer[string] // the name of the request under way
	told    lasting.Failure        // by Warn, without names of requests
}

// ForClient is the certificate by which a node is itself for the API server.
func ForClient(a Asker) *Manager {
	return newManager(Config{
		Folder: a.Folder, Client: a.Client, Begin: a.Begin, Warn: a.Warn, Metrics: a.Metrics, Log: a.Log, Signer: certificatesv1.KubeAPIServerClientKubeletSignerName,
		Usages:   []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		Template: func() *x509.CertificateRequest { return &x509.CertificateRequest{Subject: subject(a.Node)} },
	})
}

// ForServing is the certificate of the node's own API. Addresses are the names and
// the addresses that it is called by, which may change.
func ForServing(a Asker, addresses func() (names []string, ips []net.IP)) *Manager {
	return newManager(Config{
		Folder: a.Folder, Client: a.Client, Warn: a.Warn, Metrics: a.Metrics, Log: a.Log, Signer: certificatesv1.KubeletServingSignerName,
		Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		Template: func() *x509.CertificateRequest {
			names, ips := addresses()
			if len(names)+len(ips) == 0 {
				return nil
			}
			return &x509.CertificateRequest{Subject: subject(a.Node), DNSNames: slices.Sorted(slices.Values(names)), IPAddresses: ips}
		},
	})
}

func newManager(c Config) *Manager {
	m := &Manager{Config: c}
	if has, err := c.Folder.Current(); err == nil {
		m.use(has)
	}
	return m
}

// use has a certificate in the place of the one before.
func (m *Manager) use(c *tls.Certificate) {
	old := m.current.Swap(c)
	if !m.serving() {
		m.Metrics.Client(c.Leaf)
		return
	}
	m.Metrics.Serving(c.Leaf)
	if old != nil {
		m.Metrics.rotated(old.Leaf)
	}
}

func (m *Manager) serving() bool { return m.Signer == certificatesv1.KubeletServingSignerName }

// Current is the certificate, or nil.
func (m *Manager) Current() *tls.Certificate { return m.current.Load() }

// GetCertificate is for a tls.Config.
func (m *Manager) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := m.current.Load(); c != nil {
		return c, nil
	}
	if name := m.asked.Load(); name != nil {
		return nil, fmt.Errorf("the cluster has not given this node a serving certificate yet; allow it with kubectl certificate approve %s: %w", *name, errdefs.ErrUnavailable)
	}
	return nil, fmt.Errorf("this node has no serving certificate yet: %w", errdefs.ErrUnavailable)
}

// Run gets and renews the certificate until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	p := pace.Pace{First: time.Second, Most: 5 * time.Minute}
	for {
		wait := look
		if err := m.Ensure(ctx); err != nil && ctx.Err() == nil {
			m.Log.Warn("cannot get a certificate, and try again", "signer", m.Signer, "error", err)
			if !errors.Is(err, errOutdated) {
				m.Metrics.failed(m.serving())
			}
			if !pace.Away(err) && !errors.Is(err, errOutdated) {
				m.tell(err.Error())
			}
			wait = p.After(err)
		} else {
			m.told.Over()
			p.Reset()
		}
		if !pace.Sleep(ctx, wait) {
			return nil
		}
	}
}

// Reasons of events of the node.
const (
	ServingNotGranted = "ServingCertificateNotGranted"
	ClientNotGranted  = "ClientCertificateNotGranted"
)

// requestName is another one each time.
var requestName = regexp.MustCompile(`node-csr-[0-9a-f]+`)

// tell tells why there is no new certificate, and what comes of that.
func (m *Manager) tell(why string) {
	known := requestName.ReplaceAllString(why, "")
	if m.Warn == nil || !m.told.Tell(known) {
		return
	}
	reason, stake := ServingNotGranted, "kubectl logs, exec and port-forward do not reach the node"
	if m.Signer == certificatesv1.KubeAPIServerClientKubeletSignerName {
		reason, stake = ClientNotGranted, "the API server does not know the node"
	}
	until := "Without one "
	if has := m.current.Load(); has != nil {
		until = "From " + has.Leaf.NotAfter.UTC().Format(time.RFC3339) + " on, when the present one ends, "
	}
	m.Warn(reason, fmt.Sprintf("The cluster has given the node no new certificate, which is asked for again: %s. %s%s.", why, until, stake))
}

// Ensure gets a certificate if there is none, if it is due, or if it is for other
// names. It waits for somebody to allow it.
func (m *Manager) Ensure(ctx context.Context) error {
	template := m.Template()
	if template == nil {
		return nil
	}
	if m.Good(time.Now()) && covers(m.current.Load().Leaf, template) {
		return nil
	}
	c, err := m.request(ctx, template, m.Client)
	// This clock may be wrong: who ends a certificate is the API server.
	if m.Begin != nil && m.ended() && apierrors.IsUnauthorized(err) {
		m.Log.Warn("the client certificate of this node has ended, and it asks for another as a new node does", "ended", m.current.Load().Leaf.NotAfter)
		c, err = m.request(ctx, template, m.Begin)
	}
	if err != nil {
		return m.because(err)
	}
	m.use(c)
	m.Log.Info("the cluster has given this node a certificate", "signer", m.Signer, "until", c.Leaf.NotAfter)
	return nil
}

// ended says that the client certificate is too old by this machine's clock.
func (m *Manager) ended() bool {
	has := m.current.Load()
	return !m.serving() && has != nil && time.Now().After(has.Leaf.NotAfter)
}

// because says of an error what it comes from, if the certificate has ended.
func (m *Manager) because(err error) error {
	if !m.ended() {
		return err
	}
	advice := "--bootstrap-kubeconfig has it begin anew"
	if m.Begin != nil {
		advice = "who --bootstrap-kubeconfig names has to get it another one"
	}
	return fmt.Errorf("the client certificate of this node ended at %s, so that the API server does not know it; %s: %w", m.current.Load().Leaf.NotAfter.UTC().Format(time.RFC3339), advice, err)
}

// Good says that there is a certificate that need not be renewed yet.
func (m *Manager) Good(now time.Time) bool {
	c := m.current.Load()
	return c != nil && now.Before(due(c.Leaf))
}

// due is when a certificate is renewed: after 70 to 90% of its life, another share
// for each certificate, so that nodes made at once do not ask at once.
func due(c *x509.Certificate) time.Time {
	h := fnv.New32a()
	_, _ = h.Write(c.Raw)
	share := 0.7 + 0.2*float64(h.Sum32()%1000)/1000
	return c.NotBefore.Add(time.Duration(share * float64(c.NotAfter.Sub(c.NotBefore))))
}

// covers says that a certificate says all that it must.
func covers(c *x509.Certificate, t *x509.CertificateRequest) bool {
	if c.Subject.CommonName != t.Subject.CommonName {
		return false
	}
	for _, name := range t.DNSNames {
		if !slices.Contains(c.DNSNames, name) {
			return false
		}
	}
	for _, ip := range t.IPAddresses {
		if !slices.ContainsFunc(c.IPAddresses, ip.Equal) {
			return false
		}
	}
	return true
}

// errRefused is the end of a request: another one, with another key, may do better.
var errRefused = errors.New("refused")

// errOutdated is that of a request for names that the node has no more.
var errOutdated = fmt.Errorf("not wanted any more: %w", errRefused)
