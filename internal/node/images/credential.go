package images

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Auth is what a registry is shown.
type Auth struct{ Username, Password, IdentityToken string }

// Credential is an Auth, and who may use what was pulled by it.
type Credential struct {
	Auth   Auth
	Source Source
}

// Source is where a credential is from. With neither it is the node's own, and
// every pod on it may use what it pulls.
type Source struct {
	Secret         *Object `json:"secret,omitempty"`
	ServiceAccount *Object `json:"serviceAccount,omitempty"`
}

// Object names an object of a cluster. The UID is empty where there is none.
type Object struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
}

// hash tells credentials apart without keeping them.
func (a Auth) hash() string {
	// Lengths keep "a"+"bc" and "ab"+"c" apart.
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %d %s%s%s", len(a.Username), len(a.Password), len(a.IdentityToken), a.Username, a.Password, a.IdentityToken))
	return hex.EncodeToString(sum[:])
}

// Keyring holds credentials by the registries that they are for.
type Keyring struct {
	entries []entry
}

type entry struct {
	key string
	Credential
}

// Add takes a credential for a registry: "r.example:5000", "*.r.example/team",
// "https://index.docker.io/v1/". Of several for the same one the first is tried
// first.
func (k *Keyring) Add(registry string, c Credential) {
	key := strings.TrimPrefix(strings.TrimPrefix(registry, "https://"), "http://")
	host, path, _ := strings.Cut(key, "/")
	if host == "index.docker.io" || host == "registry-1.docker.io" {
		host = "docker.io"
	}
	// Clients write the version of the registry's API into their configuration.
	if version, rest, _ := strings.Cut(path, "/"); version == "v1" || version == "v2" {
		path = rest
	}
	key = host
	if path = strings.Trim(path, "/"); path != "" {
		key += "/" + path
	}
	k.entries = append(k.entries, entry{key, c})
}

// Lookup has the credentials for an image, in the order in which to try them:
// those with the longest path first, and a name before a glob.
func (k *Keyring) Lookup(image string) []Credential {
	n, err := parseName(image)
	if err != nil {
		return nil
	}
	var found []entry
	for _, e := range k.entries {
		if Match(e.key, n.repository) {
			found = append(found, e)
		}
	}
	slices.SortStableFunc(found, func(a, b entry) int {
		return cmp.Or(
			cmp.Compare(len(splitPattern(b.key).path), len(splitPattern(a.key).path)),
			cmp.Compare(b.key, a.key), // "*" sorts below every letter and digit
		)
	})
	var out []Credential
	for _, e := range found {
		// The same one twice would fail twice.
		if !slices.ContainsFunc(out, func(c Credential) bool { return c.Auth == e.Auth }) {
			out = append(out, e.Credential)
		}
	}
	return out
}

// AddSecrets takes what pull secrets hold. A secret that cannot be read has no
// credentials; the error says so, and the others are taken.
func (k *Keyring) AddSecrets(secrets []*corev1.Secret) error {
	var errs []error
	for _, s := range secrets {
		auths, err := secretAuths(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("pull secret %s/%s: %w", s.Namespace, s.Name, err))
		}
		from := Source{Secret: &Object{s.Namespace, s.Name, string(s.UID)}}
		for registry, a := range auths {
			auth, err := a.auth()
			if err != nil {
				errs = append(errs, fmt.Errorf("pull secret %s/%s, registry %s: %w", s.Namespace, s.Name, registry, err))
				continue
			}
			if auth != (Auth{}) {
				k.Add(registry, Credential{auth, from})
			}
		}
	}
	return errors.Join(errs...)
}

type dockerAuth struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identitytoken"`
}

// secretAuths reads the two forms that pull secrets have.
func secretAuths(s *corev1.Secret) (map[string]dockerAuth, error) {
	for _, key := range []string{corev1.DockerConfigJsonKey, corev1.DockerConfigKey} {
		if data := s.Data[key]; data != nil {
			auths, err := decodeAuths(data, key == corev1.DockerConfigKey)
			if err != nil {
				return nil, fmt.Errorf("its %s is %w", key, err)
			}
			return auths, nil
		}
	}
	return nil, fmt.Errorf("it has neither %s nor %s", corev1.DockerConfigJsonKey, corev1.DockerConfigKey)
}

// decodeAuths reads a docker configuration, which has nothing but registries if it is a legacy
// one.
func decodeAuths(data []byte, legacy bool) (map[string]dockerAuth, error) {
	var config struct {
		Auths map[string]dockerAuth `json:"auths"`
	}
	var into any = &config
	if legacy {
		into = &config.Auths
	}
	if err := json.Unmarshal(data, into); err != nil {
		return nil, fmt.Errorf("no docker configuration: %w", withoutData(err))
	}
	return config.Auths, nil
}

// withoutData keeps parts of a secret out of messages.
func withoutData(err error) error {
	if e := (*json.SyntaxError)(nil); errors.As(err, &e) {
		return fmt.Errorf("it is not JSON from byte %d on", e.Offset)
	}
	if e := (*json.UnmarshalTypeError)(nil); errors.As(err, &e) {
		return fmt.Errorf("it has another type than %s at byte %d", e.Type, e.Offset)
	}
	return errors.New("it cannot be decoded")
}

func (a dockerAuth) auth() (Auth, error) {
	out := Auth{Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken}
	if a.Auth == "" || out.Username != "" {
		return out, nil
	}
	plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(a.Auth), "="))
	if err != nil {
		return Auth{}, errors.New("its auth is not in base64")
	}
	user, password, ok := strings.Cut(string(plain), ":")
	if !ok {
		return Auth{}, errors.New("its auth has no colon between user and password")
	}
	out.Username, out.Password = user, password
	return out, nil
}
