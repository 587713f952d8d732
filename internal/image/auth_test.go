package image_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/image"
	"fairlead.run/test/images"
)

const password = "s3cret-of-the-test"

func basic(user, secret string) string {
	return base64.StdEncoding.EncodeToString([]byte(user + ":" + secret))
}

func TestPullAuth(t *testing.T) {
	for name, tc := range map[string]struct {
		setUp func(*images.Registry)
		auth  func(*images.Registry) *image.Auth
		good  bool
	}{
		"basic":         {basicOnly, func(*images.Registry) *image.Auth { return &image.Auth{Username: "u", Password: password} }, true},
		"basic encoded": {basicOnly, func(*images.Registry) *image.Auth { return &image.Auth{Auth: basic("u", password)} }, true},
		"basic wrong":   {basicOnly, func(*images.Registry) *image.Auth { return &image.Auth{Username: "u", Password: "no"} }, false},
		"basic none":    {basicOnly, func(*images.Registry) *image.Auth { return nil }, false},
		"basic for this": {basicOnly, func(r *images.Registry) *image.Auth {
			return &image.Auth{Username: "u", Password: password, ServerAddress: "http://" + r.Host() + "/v1/"}
		}, true},
		"basic for another": {basicOnly, func(*images.Registry) *image.Auth {
			return &image.Auth{Username: "u", Password: password, ServerAddress: "other.example"}
		}, false},
		"token for password":   {withTokens, func(*images.Registry) *image.Auth { return &image.Auth{Username: "u", Password: password} }, true},
		"token for wrong":      {withTokens, func(*images.Registry) *image.Auth { return &image.Auth{Username: "u", Password: "no"} }, false},
		"token for identity":   {withTokens, func(*images.Registry) *image.Auth { return &image.Auth{IdentityToken: "refresh-me"} }, true},
		"registry token":       {withTokens, func(r *images.Registry) *image.Auth { return &image.Auth{RegistryToken: r.BearerToken()} }, true},
		"registry token wrong": {withTokens, func(*images.Registry) *image.Auth { return &image.Auth{RegistryToken: "no"} }, false},
		"not base64":           {basicOnly, func(*images.Registry) *image.Auth { return &image.Auth{Auth: "%%" + password} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			reg := newRegistry(t)
			tc.setUp(reg)
			logs := &logBuffer{}
			cfg := config(t)
			cfg.Logger = slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
			s := openSynced(t, cfg)
			_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.Push("app:1", simple(t, "x")), Auth: tc.auth(reg)})
			if tc.good != (err == nil) {
				t.Errorf("%v", err)
			}
			if err != nil && !errors.Is(err, errdefs.ErrPrecondition) && !errors.Is(err, errdefs.ErrInvalidArgument) {
				t.Errorf("kind of %v", err)
			}
			wantNoSecret(t, cfg.Root, fmt.Sprint(err, logs))
		})
	}
}

func basicOnly(r *images.Registry)  { r.RequireBasic("u", password) }
func withTokens(r *images.Registry) { r.RequireToken("u", password, "refresh-me") }

// wantNoSecret looks for credentials in the text and in every file of the store.
func wantNoSecret(t *testing.T, root, text string) {
	t.Helper()
	secrets := []string{password, basic("u", password), "refresh-me", "bearer-of-u"}
	for _, secret := range secrets {
		if strings.Contains(text, secret) {
			t.Errorf("%q is in an error or a log", secret)
		}
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		for _, secret := range secrets {
			if strings.Contains(string(b), secret) {
				t.Errorf("%q is in %s", secret, path)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAuthDoesNotPrint(t *testing.T) {
	a := &image.Auth{Username: "u", Password: password, IdentityToken: "refresh-me"}
	var logs strings.Builder
	slog.New(slog.NewJSONHandler(&logs, nil)).Info("x", "auth", a, "value", *a, "request", image.PullRequest{Auth: a})
	b, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{fmt.Sprint(a), fmt.Sprintf("%v %+v %#v %s", *a, *a, *a, *a), logs.String(), string(b)} {
		if strings.Contains(s, password) || strings.Contains(s, "refresh-me") {
			t.Errorf("prints %s", s)
		}
	}
}

// Who has no right to an image must not get it by joining the pull of one who has.
func TestPullJoinsOnlyEqualCredentials(t *testing.T) {
	reg := newRegistry(t)
	basicOnly(reg)
	s := openSynced(t, config(t))
	ref := reg.Push("app:1", simple(t, "x"))
	good, bad := make(chan error), make(chan error)
	try := func(result chan error, secret string) {
		_, err := s.Pull(t.Context(), image.PullRequest{Ref: ref, Auth: &image.Auth{Username: "u", Password: secret}})
		result <- err
	}
	go try(good, password)
	go try(bad, "guess")
	if err := <-good; err != nil {
		t.Error(err)
	}
	if err := <-bad; !errors.Is(err, errdefs.ErrPrecondition) {
		t.Errorf("pull with a wrong password: %v", err)
	}
	if _, err := s.Pull(t.Context(), image.PullRequest{Ref: ref}); !errors.Is(err, errdefs.ErrPrecondition) {
		t.Errorf("pull without credentials of an image that is here: %v", err)
	}
}

func TestPullDockerConfig(t *testing.T) {
	bin := t.TempDir()
	helper := "#!/bin/sh\nread server\n[ \"$1 $server\" = \"get HOST\" ] || { echo credentials not found; exit 1; }\n" +
		`echo '{"Username":"u","Secret":"` + password + `"}'` + "\n"
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	for name, tc := range map[string]struct {
		files []string
		good  bool
		text  string
	}{
		"auths":              {[]string{`{"auths":{"HOST":{"auth":"AUTH"}}}`}, true, ""},
		"auths url":          {[]string{`{"auths":{"https://HOST/v1/":{"username":"u","password":"PW"}}}`}, true, ""},
		"auths pattern":      {[]string{`{"auths":{"127.*.0.1:PORT":{"auth":"AUTH"}}}`}, true, ""},
		"longest path":       {[]string{`{"auths":{"HOST":{"auth":"d3Jvbmc6d3Jvbmc="},"HOST/team":{"auth":"AUTH"},"HOST/other":{"auth":"d3Jvbmc6d3Jvbmc="}}}`}, true, ""},
		"other path only":    {[]string{`{"auths":{"HOST/tea":{"auth":"AUTH"}}}`}, false, "refuses access"},
		"second file":        {[]string{`{"auths":{"elsewhere.example":{"auth":"AUTH"}}}`, `{"auths":{"HOST":{"auth":"AUTH"}}}`}, true, ""},
		"helper":             {[]string{`{"credHelpers":{"HOST":"fairlead-test"}}`}, true, ""},
		"store":              {[]string{`{"auths":{"HOST":{}},"credsStore":"fairlead-test"}`}, true, ""},
		"helper missing":     {[]string{`{"credHelpers":{"HOST":"no-such-helper"}}`}, false, "docker-credential-no-such-helper"},
		"helper with a path": {[]string{`{"credHelpers":{"HOST":"../../bin/sh"}}`}, false, "slash"},
		"not JSON":           {[]string{`{"auths":{"HOST":{"auth":"` + password + `"`}, false, "not JSON at byte"},
		"not base64":         {[]string{`{"auths":{"HOST":{"auth":"` + password + `"}}}`}, false, "base64"},
		"empty":              {[]string{`{}`}, false, "refuses access"},
	} {
		t.Run(name, func(t *testing.T) {
			reg := newRegistry(t)
			basicOnly(reg)
			_, port, _ := strings.Cut(reg.Host(), ":")
			fill := strings.NewReplacer("HOST", reg.Host(), "PORT", port, "AUTH", basic("u", password), "PW", password)
			cfg := config(t)
			for i, body := range tc.files {
				file := filepath.Join(t.TempDir(), fmt.Sprint(i))
				writeFile(t, file, fill.Replace(body), 0o600)
				cfg.DockerConfigs = append(cfg.DockerConfigs, file)
			}
			cfg.DockerConfigs = append(cfg.DockerConfigs, "/nowhere/config.json")
			writeFile(t, filepath.Join(bin, "docker-credential-fairlead-test"), fill.Replace(helper), 0o755)
			s := openSynced(t, cfg)
			_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.Push("team/app:1", simple(t, "x"))})
			if tc.good != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.text) {
				t.Errorf("%v", err)
			}
			wantNoSecret(t, cfg.Root, fmt.Sprint(err))
		})
	}
}

func writeFile(t *testing.T, path, body string, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(body), mode); err != nil {
		t.Fatal(err)
	}
}
