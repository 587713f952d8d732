package objects

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/node/clock"
	"fairlead.run/internal/node/cluster/pace"
)

// maxTokenAge is when a token is replaced however long it holds.
const maxTokenAge = 24 * time.Hour

// renewAfter is when to ask again for a token that could not be renewed, and holds yet.
const renewAfter = time.Minute

// Account is whose token is wanted, and what for.
type Account struct {
	Pod       *corev1.Pod
	Name      string   // of the ServiceAccount; empty for the pod's own
	Audiences []string // none for the API server
	Seconds   int64    // for which it should hold
}

// tokens are asked for once, and again when four fifths of their life are over.
type tokens struct {
	client  rest.Interface
	trouble func(pod *corev1.Pod, err error)

	mu     sync.Mutex
	cached map[string]*token
}

type token struct {
	pod types.UID

	mu     sync.Mutex // held while it is asked for, so that nobody asks twice
	status *authenticationv1.TokenRequestStatus
	renew  time.Time
	ends   time.Time
	told   string // why it could not be renewed
}

func newTokens(client *cluster.Client, trouble func(pod *corev1.Pod, err error)) *tokens {
	return &tokens{client: client.REST(corev1.SchemeGroupVersion), trouble: trouble, cached: map[string]*token{}}
}

// Token is a token that holds for a while yet, bound to the pod. Who keeps it in a
// file asks again at the time that is returned: it goes by this machine's clock, which may be
// another than that of who made the token.
func (o *Objects) Token(ctx context.Context, a Account) (got *authenticationv1.TokenRequestStatus, again time.Time, err error) {
	return o.tokens.get(ctx, a)
}

func (t *tokens) get(ctx context.Context, a Account) (got *authenticationv1.TokenRequestStatus, again time.Time, err error) {
	if a.Name == "" {
		a.Name = a.Pod.Spec.ServiceAccountName
	}
	k := t.of(a)
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if k.status != nil && !clock.Over(k.renew, now) {
		return k.status, k.renew, nil
	}
	err = t.request(ctx, a, k)
	if err == nil {
		k.told = ""
		return k.status, k.renew, nil
	}
	if k.status != nil && now.Before(k.ends) {
		if text := err.Error(); text != k.told && !pace.Away(err) {
			k.told = text
			t.trouble(a.Pod, fmt.Errorf("the token that the pod has holds until %s, and a new one is asked for again: %w", k.ends.UTC().Format(time.RFC3339), err))
		}
		return k.status, now.Add(renewAfter), nil
	}
	return nil, time.Time{}, err
}

func (t *tokens) of(a Account) *token {
	key := fmt.Sprintf("%s/%s/%s/%d/%s", a.Pod.UID, a.Pod.Namespace, a.Name, a.Seconds, strings.Join(a.Audiences, "\n"))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cached[key] == nil {
		t.cached[key] = &token{pod: a.Pod.UID}
	}
	return t.cached[key]
}

func (t *tokens) request(ctx context.Context, a Account, k *token) error {
	got, asked := &authenticationv1.TokenRequest{}, time.Now()
	want := &authenticationv1.TokenRequest{
		TypeMeta: metav1.TypeMeta{Kind: "TokenRequest", APIVersion: authenticationv1.SchemeGroupVersion.String()},
		Spec: authenticationv1.TokenRequestSpec{
			Audiences:      a.Audiences,
			BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: a.Pod.Name, UID: a.Pod.UID},
		},
	}
	if a.Seconds > 0 {
		want.Spec.ExpirationSeconds = &a.Seconds
	}
	err := t.client.Post().Namespace(a.Pod.Namespace).Resource("serviceaccounts").Name(a.Name).SubResource("token").Body(want).Do(ctx).Into(got)
	if err != nil {
		return fmt.Errorf("request a token of ServiceAccount %s/%s: %w", a.Pod.Namespace, a.Name, err)
	}
	if got.Status.Token == "" {
		return fmt.Errorf("request a token of ServiceAccount %s/%s: the answer has none", a.Pod.Namespace, a.Name)
	}
	// What was agreed on counts from here by this machine's clock, which may
	// differ from the API server's.
	life := got.Status.ExpirationTimestamp.Sub(asked)
	if s := got.Spec.ExpirationSeconds; s != nil {
		life = time.Duration(*s) * time.Second
	}
	k.status, k.ends = &got.Status, asked.Add(life)
	k.renew = asked.Add(min(life*4/5, maxTokenAge))
	return nil
}

// forget ends the tokens of a pod that is gone.
func (t *tokens) forget(pod types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, k := range t.cached {
		if k.pod == pod {
			delete(t.cached, key)
		}
	}
}
