package images

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPullPolicy(t *testing.T) {
	for image, want := range map[string]corev1.PullPolicy{
		"nginx": "Always", "nginx:latest": "Always", "nginx:1": "IfNotPresent",
		"r:5000/nginx": "Always", "r:5000/nginx:1": "IfNotPresent", "a@sha256:1": "IfNotPresent",
	} {
		if got := PullPolicy(image, ""); got != want {
			t.Errorf("%s: %s", image, got)
		}
		if got := PullPolicy(image, corev1.PullNever); got != corev1.PullNever {
			t.Errorf("%s: asked for Never, got %s", image, got)
		}
	}
}

func TestParseName(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("a", 64)
	for image, want := range map[string]name{
		"nginx":            {"nginx:latest", "docker.io/library/nginx:latest", "docker.io/library/nginx"},
		"r:5000/a/b:1":     {"r:5000/a/b:1", "r:5000/a/b:1", "r:5000/a/b"},
		"localhost/x":      {"localhost/x:latest", "localhost/x:latest", "localhost/x"},
		"a/b" + digest:     {"a/b" + digest, "docker.io/a/b" + digest, "docker.io/a/b"},
		"quay.io/a:1.2-rc": {"quay.io/a:1.2-rc", "quay.io/a:1.2-rc", "quay.io/a"},
	} {
		if got, err := parseName(image); err != nil || got != want {
			t.Errorf("%s: %+v, %v", image, got, err)
		}
	}
	for _, image := range []string{"", "Upper", "a b", "a:", "a@sha256:1", "a//b", strings.Repeat("a", 64)} {
		if n, err := parseName(image); err == nil {
			t.Errorf("%q is taken for %+v", image, n)
		}
	}
}

func TestMatch(t *testing.T) {
	tests := []struct {
		pattern, repository string
		want                bool
	}{
		{"docker.io", "docker.io/library/nginx", true},
		{"r.example:5000", "r.example:5000/a/b", true},
		{"r.example:5000/a", "r.example:5000/a/b", true},
		{"r.example:5000/a/b", "r.example:5000/a/b", true},
		{"r.example:5000/a/b/c", "r.example:5000/a/b", false},
		{"r.example:5000/team-", "r.example:5000/team-x/b", true}, // a prefix, as for a kubelet
		{"r.example:5000", "r.example/a", false},
		{"r.example", "r.example:5000/a", false},
		{"https://r.example/a", "r.example/a/b", true},
		{"*.example", "r.example/a", true},
		{"*.example", "a.r.example/a", false},
		{"*.*.example", "a.r.example/a", true},
		{"*.dkr.ecr.*.example", "1.dkr.ecr.eu.example/a", true},
		{"r-*.example", "r-eu.example/a", true},
		{"r-*.example", "s-eu.example/a", false},
		{"*.example/*", "r.example/a", false},
		{"[::1]:5000", "[::1]:5000/a", true},
		{"localhost", "localhost/x", true},
		{"[", "a/x", false},
	}
	for _, tt := range tests {
		if got := Match(tt.pattern, tt.repository); got != tt.want {
			t.Errorf("%s and %s: %v", tt.pattern, tt.repository, got)
		}
	}
	for pattern, good := range map[string]bool{
		"*.example": true, "r.example:5000/a": true, "*.example/*": false, "r.example:*": false, "a..b": false, "[a": false, "": false,
	} {
		if err := CheckPattern(pattern); (err == nil) != good {
			t.Errorf("pattern %q: %v", pattern, err)
		}
	}
}

func TestKeyring(t *testing.T) {
	var k Keyring
	for _, key := range []string{
		"*.example", "r.example", "r.example/team", "https://r.example/v2/team/app", "r.example/other", "https://index.docker.io/v1/", "docker.io/mine",
	} {
		k.Add(key, Credential{Auth: Auth{Username: key}})
	}
	k.Add("r.example", Credential{Auth: Auth{Username: "second"}})
	k.Add("r.example/team", Credential{Auth: Auth{Username: "r.example"}}) // the same one again, for more
	for image, want := range map[string][]string{
		"r.example/team/app:1": {"https://r.example/v2/team/app", "r.example/team", "r.example", "second", "*.example"},
		"s.example/team/app":   {"*.example"},
		"nginx":                {"https://index.docker.io/v1/"},
		"mine/x":               {"docker.io/mine", "https://index.docker.io/v1/"},
		"quay.io/x":            nil,
		"No Name":              nil,
	} {
		var got []string
		for _, c := range k.Lookup(image) {
			got = append(got, c.Auth.Username)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", image, got, want)
		}
	}
}

func secret(name, key, data string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Data:       map[string][]byte{key: []byte(data)},
	}
}

func TestAddSecrets(t *testing.T) {
	encoded := base64.StdEncoding.EncodeToString([]byte("u:p:w"))
	tests := []struct {
		name, key, data string
		want            Auth
		problem         string
	}{
		{"json", corev1.DockerConfigJsonKey, `{"auths":{"r.example":{"username":"u","password":"p"}}}`, Auth{Username: "u", Password: "p"}, ""},
		{"old form", corev1.DockerConfigKey, `{"r.example":{"username":"u","password":"p"}}`, Auth{Username: "u", Password: "p"}, ""},
		{"auth", corev1.DockerConfigJsonKey, `{"auths":{"r.example":{"auth":"` + encoded + `"}}}`, Auth{Username: "u", Password: "p:w"}, ""},
		{"auth without padding", corev1.DockerConfigJsonKey, `{"auths":{"r.example":{"auth":"` + strings.TrimRight(encoded, "=") + `\n"}}}`, Auth{Username: "u", Password: "p:w"}, ""},
		{"token", corev1.DockerConfigJsonKey, `{"auths":{"r.example":{"identitytoken":"t"}}}`, Auth{IdentityToken: "t"}, ""},
		{"empty", corev1.DockerConfigJsonKey, `{"auths":{"r.example":{}}}`, Auth{}, ""},
		{"no JSON", corev1.DockerConfigJsonKey, `{"auths":{"r.example":{"password":"geheim`, Auth{}, "pull secret ns/s: its .dockerconfigjson is no docker configuration: it is not JSON"},
		{"wrong type", corev1.DockerConfigJsonKey, `{"auths":{"r.example":"geheim"}}`, Auth{}, "another type"},
		{"no base64", corev1.DockerConfigJsonKey, `{"auths":{"r.example":{"auth":"geheim!"}}}`, Auth{}, "registry r.example: its auth is not in base64"},
		{"no colon", corev1.DockerConfigJsonKey, `{"auths":{"r.example":{"auth":"Z2VoZWlt"}}}`, Auth{}, "no colon"},
		{"another secret", "key", "geheim", Auth{}, "neither .dockerconfigjson nor .dockercfg"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var k Keyring
			err := k.AddSecrets([]*corev1.Secret{secret("s", tt.key, tt.data)})
			if tt.problem == "" && err != nil || tt.problem != "" && (err == nil || !strings.Contains(err.Error(), tt.problem)) {
				t.Errorf("err = %v, want %q", err, tt.problem)
			}
			if err != nil && strings.Contains(err.Error(), "geheim") {
				t.Errorf("the error shows what is in the secret: %v", err)
			}
			found := k.Lookup("r.example/a")
			switch {
			case tt.want == Auth{}:
				if len(found) != 0 {
					t.Errorf("found %+v", found)
				}
			case len(found) != 1 || found[0].Auth != tt.want || *found[0].Source.Secret != Object{Namespace: "ns", Name: "s"}:
				t.Errorf("found %+v, want %+v", found, tt.want)
			}
		})
	}
}
