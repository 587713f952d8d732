package provider

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/keylock"
	"fairlead.run/internal/node/clock"
	"fairlead.run/internal/node/images"
)

// Config is what Providers work with.
type Config struct {
	Plugins []Plugin
	Dir     string // that has their programs
	// Accounts is required where a plugin has tokenAttributes.
	Accounts Accounts
	Limit    time.Duration // of one run; 0 is a minute
}

// Accounts knows service accounts, and makes tokens.
type Accounts interface {
	ServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error)
	// Token makes one that is bound to the pod.
	Token(ctx context.Context, pod *corev1.Pod, audience string) (string, error)
}

// Providers asks all plugins that are for an image. It is an
// images.Credentials.
type Providers struct {
	plugins  []*plugin
	accounts Accounts
}

type plugin struct {
	Plugin
	path  string
	limit time.Duration
	asked keylock.Locks[string]

	mu      sync.Mutex
	answers map[string]answer
}

// answer is one of a plugin, or why there is none.
type answer struct {
	auths map[string]images.Auth
	err   error
	at    time.Time
	until time.Time
}

// New makes Providers. It fails if a program is missing.
func New(c Config) (*Providers, error) {
	out := &Providers{accounts: c.Accounts}
	if c.Limit == 0 {
		c.Limit = timeLimit
	}
	for _, p := range c.Plugins {
		path := filepath.Join(c.Dir, p.Name)
		info, err := os.Stat(path)
		if err == nil && (info.IsDir() || info.Mode()&0o111 == 0) {
			err = fmt.Errorf("%s is not executable", path)
		}
		if err != nil {
			return nil, fmt.Errorf("credential provider %s: its program has to be in the folder of plugins: %w", p.Name, err)
		}
		if p.TokenAttributes != nil && c.Accounts == nil {
			return nil, fmt.Errorf("credential provider %s: tokenAttributes need an API server that makes tokens, and this node has none", p.Name)
		}
		out.plugins = append(out.plugins, &plugin{Plugin: p, path: path, limit: c.Limit, answers: map[string]answer{}})
	}
	return out, nil
}

// Lookup implements images.Credentials. Plugins are asked at the same time, and
// of those for the same registry the one that is configured first comes first.
func (p *Providers) Lookup(ctx context.Context, image string, pod *corev1.Pod) ([]images.Credential, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return nil, fmt.Errorf("image name %q: %w", image, err)
	}
	repository := named.Name()
	answers, sources := make([]answer, len(p.plugins)), make([]images.Source, len(p.plugins))
	var all sync.WaitGroup
	for i, pl := range p.plugins {
		if slices.ContainsFunc(pl.MatchImages, func(m string) bool { return images.Match(m, repository) }) {
			all.Go(func() { answers[i], sources[i] = p.ask(ctx, pl, repository, pod) })
		}
	}
	all.Wait()
	var ring images.Keyring
	var errs []error
	for i, a := range answers {
		if a.err != nil {
			errs = append(errs, fmt.Errorf("credential provider %s: %w", p.plugins[i].Name, a.err))
		}
		for registry, auth := range a.auths {
			ring.Add(registry, images.Credential{Auth: auth, Source: sources[i]})
		}
	}
	return ring.Lookup(image), errors.Join(errs...)
}

// ask has a plugin's answer for a repository, and who may use it.
func (p *Providers) ask(ctx context.Context, pl *plugin, repository string, pod *corev1.Pod) (answer, images.Source) {
	r := request{Image: repository}
	var source images.Source
	who := ""
	if t := pl.TokenAttributes; t != nil {
		account, err := p.identify(ctx, t, pod, &r)
		if err != nil {
			return answer{err: err}, source
		}
		if account == nil && *t.Require {
			return answer{}, source // it is not for this pod
		}
		if account != nil {
			source.ServiceAccount = &images.Object{Namespace: account.Namespace, Name: account.Name, UID: string(account.UID)}
			who = identity(t, source.ServiceAccount, r)
		}
	}
	return pl.get(ctx, r, who), source
}

// identify puts the pod's service account into a request. A pod has none if
// nobody gave it one, as on a node without an API server.
func (p *Providers) identify(ctx context.Context, t *TokenAttributes, pod *corev1.Pod, r *request) (*corev1.ServiceAccount, error) {
	if pod == nil || pod.Spec.ServiceAccountName == "" {
		return nil, nil
	}
	account, err := p.accounts.ServiceAccount(ctx, pod.Namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		return nil, fmt.Errorf("get service account %s/%s: %w", pod.Namespace, pod.Spec.ServiceAccountName, err)
	}
	r.Annotations = map[string]string{}
	for _, key := range t.RequiredKeys {
		if _, ok := account.Annotations[key]; !ok {
			return nil, fmt.Errorf("service account %s/%s does not have the annotation %s, which the plugin requires", account.Namespace, account.Name, key)
		}
	}
	for _, key := range slices.Concat(t.RequiredKeys, t.OptionalKeys) {
		if value, ok := account.Annotations[key]; ok {
			r.Annotations[key] = value
		}
	}
	if r.Token, err = p.accounts.Token(ctx, pod, t.Audience); err != nil {
		return nil, fmt.Errorf("make a token of service account %s/%s for %s: %w", account.Namespace, account.Name, t.Audience, err)
	}
	return account, nil
}

// identity is for whom an answer may be kept.
func identity(t *TokenAttributes, account *images.Object, r request) string {
	// %q keeps the parts apart, and maps are printed in order.
	text := fmt.Sprintf("%q %q %q %q", account.Namespace, account.Name, account.UID, r.Annotations)
	if t.CacheType == PerToken {
		text += fmt.Sprintf(" %q", r.Token)
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// get has an answer that is still good, or asks for one. Who asks for the same
// at the same time gets the same answer.
func (p *plugin) get(ctx context.Context, r request, who string) answer {
	came := time.Now()
	registry, _, _ := strings.Cut(r.Image, "/")
	keys := map[string]string{
		forImage: who + " image " + r.Image, forRegistry: who + " registry " + registry, forAll: who + " global",
	}
	if a, ok := p.kept(keys, came); ok {
		return a
	}
	unlock, err := p.asked.Lock(ctx, keys[forImage])
	if err != nil {
		return answer{err: err}
	}
	defer unlock()
	if a, ok := p.kept(keys, came); ok {
		return a
	}
	said, err := p.run(ctx, r)
	if err != nil && ctx.Err() != nil {
		return answer{err: err} // of this caller alone
	}
	a := answer{err: err, at: time.Now()}
	a.until = a.at
	key := keys[forImage]
	if err == nil {
		key = keys[said.CacheKeyType]
		keep := p.DefaultCacheDuration.Duration
		if said.CacheDuration != nil {
			keep = said.CacheDuration.Duration
		}
		a.until = a.at.Add(keep)
		a.auths = map[string]images.Auth{}
		for registry, auth := range said.Auth {
			a.auths[registry] = images.Auth{Username: auth.Username, Password: auth.Password}
		}
	}
	p.keep(key, a)
	return a
}

// kept finds an answer that is good now, or that came after somebody asked.
func (p *plugin) kept(keys map[string]string, came time.Time) (answer, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, kind := range []string{forImage, forRegistry, forAll} {
		if a, ok := p.answers[keys[kind]]; ok && (!clock.Over(a.until, time.Now()) || a.at.After(came)) {
			return a, true
		}
	}
	return answer{}, false
}

func (p *plugin) keep(key string, a answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, old := range p.answers {
		// Who came before the answer may still look for it.
		if a.at.Sub(old.until) > p.limit {
			delete(p.answers, k)
		}
	}
	p.answers[key] = a
}
