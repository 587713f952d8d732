package image_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/image"
	"fairlead.run/test/images"
)

// hostsDir is how the folder of a registry with a port is called.
func hostsDir(root, host string) string {
	return filepath.Join(root, strings.Replace(host, ":", "_", 1)+"_")
}

func TestPullMirror(t *testing.T) {
	upstream, mirror := newRegistry(t), newRegistry(t)
	built := simple(t, "x")
	ref := upstream.Push("app:1", built)
	mirror.Push("app:1", built)
	cfg := config(t)
	writeFile(t, filepath.Join(hostsDir(cfg.CertsDirs[0], upstream.Host()), "hosts.toml"),
		"[host.\"http://"+mirror.Host()+"\"]\n  capabilities = [\"pull\", \"resolve\"]\n", 0o644)
	s := openSynced(t, cfg)
	img := pull(t, s, ref)
	if len(upstream.Requests()) != 0 || len(mirror.Requests()) == 0 {
		t.Errorf("upstream was asked %v, the mirror %v", upstream.Requests(), mirror.Requests())
	}
	if img.RepoTags[0] != ref {
		t.Errorf("the image is called %s after the mirror", img.RepoTags[0])
	}
	if err := s.Remove(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	mirror.Inject(images.Fault{Status: 503})
	pull(t, s, ref) // the registry itself steps in
}

// What is wrong with the registry is said even if a mirror has answered that it
// does not have the image.
func TestPullEmptyMirror(t *testing.T) {
	serving := func(setUp func(*images.Registry)) string {
		r := newRegistry(t)
		setUp(r)
		return r.Host()
	}
	for name, tc := range map[string]struct {
		host string
		kind error
		want string // HOST is the host, and the mirror is not named
	}{
		"wants a password": {serving(basicOnly), errdefs.ErrPrecondition, ": HOST refuses access"},
		"wants a token":    {serving(withTokens), errdefs.ErrPrecondition, ": HOST refuses access"},
		"not there":        {"127.0.0.1:1", errdefs.ErrUnavailable, "cannot reach HOST: "},
		"has it neither":   {serving(func(*images.Registry) {}), errdefs.ErrNotFound, " or HOST; check the name"},
	} {
		t.Run(name, func(t *testing.T) {
			mirror := newRegistry(t)
			cfg := config(t)
			writeFile(t, filepath.Join(hostsDir(cfg.CertsDirs[0], tc.host), "hosts.toml"), "[host.\"http://"+mirror.Host()+"\"]\n", 0o644)
			_, err := openSynced(t, cfg).Pull(t.Context(), image.PullRequest{Ref: tc.host + "/app:1"})
			if want := strings.Replace(tc.want, "HOST", tc.host, 1); !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), want) {
				t.Errorf("err = %v, want one of kind %v with %q", err, tc.kind, want)
			}
			if len(mirror.Requests()) == 0 {
				t.Error("the mirror was not asked")
			}
		})
	}
}

// Credentials of the request are for the registry, not for whoever mirrors it.
func TestPullMirrorGetsNoCredentials(t *testing.T) {
	upstream, mirror := newRegistry(t), newRegistry(t)
	basicOnly(upstream)
	basicOnly(mirror)
	built := simple(t, "x")
	ref := upstream.Push("app:1", built)
	mirror.Push("app:1", built)
	cfg := config(t)
	writeFile(t, filepath.Join(hostsDir(cfg.CertsDirs[0], upstream.Host()), "hosts.toml"), "[host.\"http://"+mirror.Host()+"\"]\n", 0o644)
	s := openSynced(t, cfg)
	if _, err := s.Pull(t.Context(), image.PullRequest{Ref: ref, Auth: &image.Auth{Username: "u", Password: password}}); err != nil {
		t.Fatal(err)
	}
	if told := mirror.Authorizations(); len(told) != 0 || len(mirror.Requests()) == 0 {
		t.Errorf("the mirror was told %v", told)
	}
}

func TestPullSecondCertsDir(t *testing.T) {
	upstream, mirror := newRegistry(t), newRegistry(t)
	ref := upstream.Push("app:1", simple(t, "x"))
	mirror.Push("app:1", simple(t, "x"))
	cfg := config(t)
	cfg.CertsDirs = append(cfg.CertsDirs, filepath.Join(t.TempDir(), "containerd"))
	writeFile(t, filepath.Join(hostsDir(cfg.CertsDirs[1], upstream.Host()), "hosts.toml"), "[host.\"http://"+mirror.Host()+"\"]\n", 0o644)
	pull(t, openSynced(t, cfg), ref)
	if len(upstream.Requests()) != 0 {
		t.Error("the second folder was not read although the first does not exist")
	}
	// One that exists counts alone, whatever is in it.
	if err := os.MkdirAll(cfg.CertsDirs[0], 0o755); err != nil {
		t.Fatal(err)
	}
	cfg.Root += "2"
	pull(t, openSynced(t, cfg), ref)
	if len(upstream.Requests()) == 0 {
		t.Error("the second folder was read although the first exists")
	}
}

func TestPullBrokenHostsFile(t *testing.T) {
	reg := newRegistry(t)
	ref := reg.Push("app:1", simple(t, "x"))
	cfg := config(t)
	file := filepath.Join(hostsDir(cfg.CertsDirs[0], reg.Host()), "hosts.toml")
	writeFile(t, file, "server = \"http://x\"\n[host.\n", 0o644)
	_, err := openSynced(t, cfg).Pull(t.Context(), image.PullRequest{Ref: ref})
	if !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), file+":2:") {
		t.Errorf("%v", err)
	}
	if len(reg.Requests()) != 0 {
		t.Error("the registry was asked although its configuration cannot be read")
	}
}

// A certificate that nobody vouches for is fine on loopback and nowhere else;
// there, ca.crt in certs.d makes it good.
func TestPullTLS(t *testing.T) {
	reg := images.NewTLSRegistry()
	t.Cleanup(reg.Close)
	ref := reg.Push("app:1", simple(t, "x"))
	pull(t, openSynced(t, config(t)), ref)

	cfg := config(t)
	dir := hostsDir(cfg.CertsDirs[0], reg.Host())
	writeFile(t, filepath.Join(dir, "hosts.toml"), "server = \"https://"+reg.Host()+"\"\nskip_verify = false\n", 0o644)
	_, err := openSynced(t, cfg).Pull(t.Context(), image.PullRequest{Ref: ref})
	if !errors.Is(err, errdefs.ErrUnavailable) || !strings.Contains(err.Error(), "certificate of "+reg.Host()+" is not trusted") {
		t.Errorf("%v", err)
	}
	writeFile(t, filepath.Join(dir, "hosts.toml"), "server = \"https://"+reg.Host()+"\"\nca = \"ca.crt\"\n", 0o644)
	writeFile(t, filepath.Join(dir, "ca.crt"), string(reg.Certificate()), 0o644)
	cfg.Root += "2"
	pull(t, openSynced(t, cfg), ref)
}
