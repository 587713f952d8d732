// Package registry knows where to ask for an image and what to say there: hosts
// and mirrors from hosts.toml files, credentials from requests, docker's
// config.json and credential helpers. It fetches nothing.
package registry

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"github.com/distribution/reference"

	"fairlead.run/internal/errdefs"
)

// Auth is what a caller proves his right to an image with. Which fields are set
// decides the method, in the order below. It prints as "redacted".
type Auth struct {
	RegistryToken string // bearer token, sent as it is
	IdentityToken string // refresh token, exchanged for a bearer token
	Username      string
	Password      string
	Auth          string // base64 of "username:password"
	ServerAddress string // registry that this is for; empty: the image's own
}

// authFields is Auth without its methods.
type authFields Auth

// String keeps credentials out of messages.
func (Auth) String() string { return "redacted" }

// GoString keeps credentials out of messages.
func (Auth) GoString() string { return "redacted" }

// LogValue keeps credentials out of logs.
func (Auth) LogValue() slog.Value { return slog.StringValue("redacted") }

// MarshalJSON keeps credentials out of files.
func (Auth) MarshalJSON() ([]byte, error) { return []byte(`"redacted"`), nil }

// Fingerprint tells credentials apart without being of any use as such.
func (a *Auth) Fingerprint() string {
	b, _ := json.Marshal((*authFields)(a)) // strings only, cannot fail
	return fmt.Sprintf("%x", sha256.Sum256(b))
}

// login is a user name and a secret. Without a user name the secret is a
// refresh token.
type login struct{ user, secret string }

func (a *Auth) login() (login, error) {
	switch {
	case a.IdentityToken != "":
		return login{secret: a.IdentityToken}, nil
	case a.Username != "" || a.Password != "":
		return login{a.Username, a.Password}, nil
	case a.Auth != "":
		return decodeLogin(a.Auth)
	}
	return login{}, nil
}

// decodeLogin reads the form that docker's config.json has.
func decodeLogin(s string) (login, error) {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil { // the text of err would repeat part of a secret
		return login{}, fmt.Errorf(`field "auth" is not base64 of "username:password": %w`, errdefs.ErrInvalidArgument)
	}
	user, secret, ok := strings.Cut(strings.TrimRight(string(b), "\x00"), ":")
	if !ok {
		return login{}, fmt.Errorf(`field "auth" has no colon between user name and password: %w`, errdefs.ErrInvalidArgument)
	}
	return login{user, secret}, nil
}

// Credentials finds what to send to a registry on behalf of one pull.
type Credentials struct {
	Named reference.Named
	Auth  *Auth    // of the request
	Files []string // docker config.json files
}

// forHost is called by the registry client when the host asks who we are. What
// the request brought goes to the registry it is for and to no mirror: a mirror
// that needs a password has its own in a config file.
func (c Credentials) forHost(ctx context.Context, host string) (string, string, error) {
	if c.Auth != nil && sameRegistry(host, c.registry()) {
		l, err := c.Auth.login()
		if err != nil {
			return "", "", fmt.Errorf("credentials of the request: %w", err)
		}
		if l != (login{}) {
			return l.user, l.secret, nil
		}
	}
	l, err := lookUpLogin(ctx, c.Files, host, reference.Path(c.Named))
	return l.user, l.secret, err
}

// token is the bearer token of the request, if it is meant for the host.
func (c Credentials) token(host string) string {
	if c.Auth == nil || !sameRegistry(host, c.registry()) {
		return ""
	}
	return c.Auth.RegistryToken
}

// registry is the host that the request's credentials are for.
func (c Credentials) registry() string {
	if c.Auth.ServerAddress != "" {
		return hostOf(c.Auth.ServerAddress)
	}
	return reference.Domain(c.Named)
}

// hostOf takes the host out of "https://index.docker.io/v1/" and the like.
func hostOf(address string) string {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		return u.Host
	}
	host, _, _ := strings.Cut(address, "/")
	return host
}

func sameRegistry(a, b string) bool { return canonicalHost(a) == canonicalHost(b) }

// canonicalHost maps the names of Docker Hub to one.
func canonicalHost(host string) string {
	host = strings.ToLower(host)
	switch host {
	case "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com":
		return "docker.io"
	}
	return host
}
