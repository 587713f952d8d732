package refs_test

import (
	"errors"
	"strings"
	"testing"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/image/refs"
)

func TestNormalize(t *testing.T) {
	hex := strings.Repeat("0123456789abcdef", 4)
	for in, want := range map[string]string{
		"nginx":                             "docker.io/library/nginx:latest",
		"nginx:1.29":                        "docker.io/library/nginx:1.29",
		"team/app":                          "docker.io/team/app:latest",
		"docker.io/nginx":                   "docker.io/library/nginx:latest",
		"index.docker.io/library/nginx":     "docker.io/library/nginx:latest",
		"registry.example/app":              "registry.example/app:latest",
		"registry.example:5000/a/b/c:v1":    "registry.example:5000/a/b/c:v1",
		"localhost/app":                     "localhost/app:latest",
		"127.0.0.1:5000/app":                "127.0.0.1:5000/app:latest",
		"[::1]:5000/app":                    "[::1]:5000/app:latest",
		"nginx@sha256:" + hex:               "docker.io/library/nginx@sha256:" + hex,
		"nginx:1.29@sha256:" + hex:          "docker.io/library/nginx@sha256:" + hex,
		"a.example/n:1.29@sha256:" + hex:    "a.example/n@sha256:" + hex,
		"":                                  "",
		" nginx":                            "",
		"Nginx":                             "",
		"nginx:":                            "",
		"nginx@sha256:12":                   "",
		"https://registry.example/app":      "",
		"sha256:" + hex:                     "",
		hex:                                 "",
		"nginx:" + strings.Repeat("a", 200): "",
	} {
		got, err := refs.Normalize(in)
		if got != want || (err != nil) != (want == "") || err != nil && !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	if _, err := refs.Normalize("a b"); err == nil || !strings.Contains(err.Error(), "a name is [HOST[:PORT]/]PATH[:TAG][@DIGEST]") {
		t.Errorf("the error does not say what a name is: %v", err)
	}
}
