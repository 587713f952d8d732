package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/errdefs"
)

// How often the Secret and the configurations are looked at, and how often after
// a failure. A few small requests; a watch would have to be allowed for all.
const (
	lookEvery  = 10 * time.Second
	retryEvery = 2 * time.Second
	lookTime   = 10 * time.Second
	writeTries = 5 // when other replicas write, too
)

// errTry is that another replica was faster.
var errTry = errors.New("not written; another replica may have been faster")

// Place says where certificates are kept, and who has to know.
type Place struct {
	Namespace, Secret string
	Hosts             []string // names and addresses by which API servers call
	// The names of the configurations that get the authority; "" for none.
	Mutating, Validating string
}

// Managed makes certificates by itself.
type Managed struct {
	client *cluster.Client
	place  Place
	log    *slog.Logger
	absent map[string]bool // resources of configurations that are not there; of Run alone
	told   []byte          // the authority that was last in the Secret; of Run alone

	mu      sync.Mutex
	serving *tls.Certificate
	trouble error // why the last look failed; nil if it did not
	// believed says that API servers were told whom to believe. They are told of
	// what follows before it is served.
	believed bool
}

// NewManaged makes one that has no certificate until Run.
func NewManaged(client *cluster.Client, place Place, log *slog.Logger) *Managed {
	return &Managed{client: client, place: place, log: log, absent: map[string]bool{}, trouble: fmt.Errorf("make a certificate: not done yet: %w", errdefs.ErrUnavailable)}
}

// Run keeps certificate and configurations right until ctx ends.
func (m *Managed) Run(ctx context.Context) error {
	for {
		wait := lookEvery
		if err := m.look(ctx); err != nil && ctx.Err() == nil {
			wait = retryEvery
			m.failed(err)
		}
		if slices.Contains(slices.Collect(maps.Values(m.absent)), true) {
			wait = retryEvery // pods wait for its authority once it is there
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// Certificate is for tls.Config.
func (m *Managed) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.serving == nil {
		return nil, m.trouble
	}
	return m.serving, nil
}

// Ready says why API servers may not believe the certificate; nil if they do.
func (m *Managed) Ready() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.serving != nil && !time.Now().Before(m.serving.Leaf.NotAfter) {
		return fmt.Errorf("the serving certificate ended at %s: %w", m.serving.Leaf.NotAfter.Format(time.RFC3339), errdefs.ErrUnavailable)
	}
	if m.believed {
		return nil // trouble that came later does not make it any less so
	}
	return m.trouble
}

// Expires is when the certificate ends; zero if there is none.
func (m *Managed) Expires() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.serving == nil {
		return time.Time{}
	}
	return m.serving.Leaf.NotAfter
}

func (m *Managed) failed(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.trouble == nil || m.trouble.Error() != err.Error() {
		m.log.Warn("cannot keep the certificate of the webhook", "error", err)
	}
	m.trouble = err
}

// look does what is due, once.
func (m *Managed) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	shared, err := m.share(ctx)
	if err != nil {
		return err
	}
	m.told = shared.authority.cert
	// API servers hear of the authority before they see what it has signed. If
	// they cannot, what is served now is still the best, unless there is nothing.
	injected := m.inject(ctx, shared.bundle())
	m.mu.Lock()
	defer m.mu.Unlock()
	if injected == nil {
		m.trouble, m.believed = nil, true
	}
	stale := m.serving == nil || !time.Now().Before(m.serving.Leaf.NotAfter)
	if (injected == nil || stale) && (m.serving == nil || !bytes.Equal(m.serving.Leaf.Raw, shared.serving.leaf.Raw)) {
		m.serving = shared.serving.served()
		m.log.Info("serve with a certificate", "expires", m.serving.Leaf.NotAfter, "hosts", strings.Join(m.place.Hosts, ","))
	}
	return injected
}

// share reads the material of all replicas, and renews it if that is due.
func (m *Managed) share(ctx context.Context) (material, error) {
	for range writeTries {
		shared, err := m.shareOnce(ctx)
		if !errors.Is(err, errTry) {
			return shared, err
		}
	}
	return material{}, fmt.Errorf("write Secret %s/%s: others write it all the time; is it the Secret of this webhook alone?: %w", m.place.Namespace, m.place.Secret, errdefs.ErrUnavailable)
}

func (m *Managed) shareOnce(ctx context.Context) (material, error) {
	rest := m.client.REST(corev1.SchemeGroupVersion)
	secret := &corev1.Secret{}
	err := rest.Get().Namespace(m.place.Namespace).Resource("secrets").Name(m.place.Secret).Do(ctx).Into(secret)
	exists := err == nil
	if err != nil && !apierrors.IsNotFound(err) {
		return material{}, fmt.Errorf("read Secret %s/%s: %w", m.place.Namespace, m.place.Secret, err)
	}
	had, broken := read(secret.Data)
	if had.authority == nil && len(had.previous) == 0 {
		// Somebody has deleted it. Until all replicas have seen that, some serve with what
		// the one that is lost has signed.
		had.previous = m.told
	}
	now, changed, err := had.renew(m.place.Hosts, time.Now())
	if err != nil || !changed {
		return now, err
	}
	if len(broken) > 0 {
		m.log.Warn("replace what cannot be read in the Secret of the webhook", "secret", m.place.Secret, "broken", strings.Join(broken, "; "))
	}
	write := rest.Put().Name(m.place.Secret)
	if !exists {
		write = rest.Post()
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: m.place.Namespace, Name: m.place.Secret, Labels: map[string]string{secretLabel: secretLabelValue},
		}}
	}
	secret.Data = now.write(secret.Data)
	err = write.Namespace(m.place.Namespace).Resource("secrets").Body(secret).Do(ctx).Error()
	switch {
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
		return material{}, errTry
	case err != nil:
		return material{}, fmt.Errorf("write Secret %s/%s: %w", m.place.Namespace, m.place.Secret, err)
	}
	m.log.Info("wrote new certificates into the Secret of the webhook", "secret", m.place.Secret, "expires", now.serving.leaf.NotAfter)
	return now, nil
}
