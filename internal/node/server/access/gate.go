package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// The groups and the name that Kubernetes gives to everybody of a kind.
const (
	authenticated   = "system:authenticated"
	unauthenticated = "system:unauthenticated"
	anonymous       = "system:anonymous"
)

// TokenReviewer asks an API server whose a token is.
type TokenReviewer interface {
	ReviewToken(ctx context.Context, r *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error)
}

// AccessReviewer asks an API server whether somebody may do something.
type AccessReviewer interface {
	ReviewAccess(ctx context.Context, r *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error)
}

// Config is what a Gate works with.
type Config struct {
	// Clients signs certificates of clients; nil means that none is accepted.
	Clients *Bundle
	// Tokens says whose bearer tokens are; nil means that none is accepted.
	Tokens TokenReviewer
	// Audiences that tokens must be for; none means the API server's own.
	Audiences []string
	// Anonymous lets requests without certificate and token through as
	// system:anonymous.
	Anonymous bool
	// Access says who may do what; nil is an error unless AlwaysAllow is set.
	Access AccessReviewer
	// AlwaysAllow lets whoever is known do everything.
	AlwaysAllow bool
	// NodeName is the node that reviews are about.
	NodeName string
	// How long answers are kept; zero means as long as a kubelet keeps them.
	TokenTTL, AllowedTTL, DeniedTTL time.Duration
	Log                             *slog.Logger
}

// Times of a kubelet, but that a token which was refused is asked about again
// sooner: it may be one that is about to become valid.
const (
	tokenTTL   = 2 * time.Minute
	refusedTTL = 10 * time.Second
	allowedTTL = 5 * time.Minute
	deniedTTL  = 30 * time.Second
)

// Gate lets requests through.
type Gate struct {
	cfg    Config
	tokens *cache[tokenAnswer]
	access *cache[bool]
}

// tokenAnswer is nobody if the token is no good.
type tokenAnswer struct {
	user authenticationv1.UserInfo
	ok   bool
}

// New checks the configuration: it must be able to let somebody in.
func New(c Config) (*Gate, error) {
	switch {
	case c.Log == nil || c.NodeName == "":
		return nil, errors.New("make the gate of the node API: Config.Log and NodeName must be set")
	case c.Access == nil && !c.AlwaysAllow:
		return nil, errors.New("make the gate of the node API: there is nobody to ask who may do what; set Access, or AlwaysAllow")
	case c.Clients == nil && c.Tokens == nil && !c.Anonymous:
		return nil, errors.New("make the gate of the node API: nobody could get in; set a CA bundle for clients, a reviewer of tokens, or Anonymous")
	}
	for _, d := range []struct {
		ttl *time.Duration
		def time.Duration
	}{{&c.TokenTTL, tokenTTL}, {&c.AllowedTTL, allowedTTL}, {&c.DeniedTTL, deniedTTL}} {
		if *d.ttl == 0 {
			*d.ttl = d.def
		}
	}
	g := &Gate{cfg: c}
	g.tokens, g.access = newCache(g.reviewToken), newCache(g.reviewAccess)
	return g, nil
}

// Wrap lets only those requests through to next that are allowed. Their paths
// must be clean, for they say what is asked for.
func (g *Gate) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := g.who(r)
		if err != nil {
			g.cfg.Log.Debug("refused a request to the node API", "remote", r.RemoteAddr, "path", r.URL.Path, "error", err)
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		if !g.may(w, r, user) {
			return
		}
		// What the caller has proved is of no use to anybody further inside.
		r.Header.Del("Authorization")
		next.ServeHTTP(w, r)
	})
}

// who is asking. Proof that is no good is an error though nobody had to prove
// anything: its owner would wonder why so little is allowed.
func (g *Gate) who(r *http.Request) (authenticationv1.UserInfo, error) {
	var failed error
	if g.cfg.Clients != nil && r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		user, err := g.cfg.Clients.user(r.TLS.PeerCertificates)
		if err == nil {
			return user, nil
		}
		failed = err
	}
	token, given := bearer(r)
	if given && g.cfg.Tokens != nil {
		a, err := g.tokens.get(r.Context(), token, token)
		switch {
		case err != nil:
			failed = fmt.Errorf("review the token: %w", err)
		case a.ok:
			return a.user, nil
		default:
			failed = errors.New("the API server does not know the token")
		}
	}
	switch {
	case failed != nil:
		return authenticationv1.UserInfo{}, failed
	case r.Header.Get("Authorization") != "":
		return authenticationv1.UserInfo{}, errors.New("the header Authorization is of a kind that is not accepted here")
	case !g.cfg.Anonymous:
		return authenticationv1.UserInfo{}, errors.New("there is no client certificate and no token")
	}
	return authenticationv1.UserInfo{Username: anonymous, Groups: []string{unauthenticated}}, nil
}

// bearer is the token of a request.
func bearer(r *http.Request) (string, bool) {
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	token = strings.TrimSpace(token)
	return token, strings.EqualFold(scheme, "bearer") && token != ""
}

func (g *Gate) reviewToken(ctx context.Context, question any) (tokenAnswer, time.Duration, error) {
	token, _ := question.(string)
	r, err := g.cfg.Tokens.ReviewToken(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: g.cfg.Audiences}})
	if err != nil {
		return tokenAnswer{}, 0, err
	}
	if !r.Status.Authenticated || r.Status.User.Username == "" || !g.forUs(r.Status.Audiences) {
		return tokenAnswer{}, refusedTTL, nil
	}
	return tokenAnswer{user: r.Status.User, ok: true}, g.cfg.TokenTTL, nil
}

// forUs says whether a token is for an audience that was asked for. An API
// server that does not know audiences names none, which is not enough then.
func (g *Gate) forUs(audiences []string) bool {
	for _, want := range g.cfg.Audiences {
		for _, have := range audiences {
			if want == have {
				return true
			}
		}
	}
	return len(g.cfg.Audiences) == 0
}

// may asks whether a request is allowed, and answers it if it is not.
func (g *Gate) may(w http.ResponseWriter, r *http.Request, user authenticationv1.UserInfo) bool {
	if g.cfg.AlwaysAllow {
		return true
	}
	asked := attributes(r, g.cfg.NodeName)
	if len(asked) == 0 {
		http.Error(w, fmt.Sprintf("Forbidden (user=%s, method=%s): the method stands for no verb", user.Username, r.Method), http.StatusForbidden)
		return false
	}
	for i := range asked {
		ok, err := g.allowed(r.Context(), user, &asked[i])
		if err != nil {
			g.cfg.Log.Warn("could not ask who may use the node API", "user", user.Username, "verb", asked[i].Verb, "subresource", asked[i].Subresource, "error", err)
			http.Error(w, "Authorization error ("+describe(user, asked)+"): the API server could not be asked; try again", http.StatusInternalServerError)
			return false
		}
		if ok {
			return true
		}
	}
	http.Error(w, "Forbidden ("+describe(user, asked)+")", http.StatusForbidden)
	return false
}

func describe(user authenticationv1.UserInfo, asked []authorizationv1.ResourceAttributes) string {
	var names []string
	for i := range asked {
		names = append(names, asked[i].Subresource)
	}
	return fmt.Sprintf("user=%s, verb=%s, resource=%s, subresource(s)=%v", user.Username, asked[0].Verb, asked[0].Resource, names)
}

func (g *Gate) allowed(ctx context.Context, user authenticationv1.UserInfo, a *authorizationv1.ResourceAttributes) (bool, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: a, User: user.Username, Groups: user.Groups, UID: user.UID}
	for key, values := range user.Extra {
		if spec.Extra == nil {
			spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	name, err := json.Marshal(&spec) // the keys of maps are sorted
	if err != nil {
		return false, fmt.Errorf("describe the request: %w", err)
	}
	return g.access.get(ctx, string(name), spec)
}

func (g *Gate) reviewAccess(ctx context.Context, question any) (bool, time.Duration, error) {
	spec, _ := question.(authorizationv1.SubjectAccessReviewSpec)
	r, err := g.cfg.Access.ReviewAccess(ctx, &authorizationv1.SubjectAccessReview{Spec: spec})
	if err != nil {
		return false, 0, err
	}
	if r.Status.Allowed && !r.Status.Denied {
		return true, g.cfg.AllowedTTL, nil
	}
	return false, g.cfg.DeniedTTL, nil
}
