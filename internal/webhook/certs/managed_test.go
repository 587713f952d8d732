package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/cluster"
	"fairlead.run/test/apiserver"
)

var (
	secrets    = apiserver.Resource{Path: "api/v1/secrets", Kind: "Secret", Namespaced: true}
	mutating   = apiserver.Resource{Path: "apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", Kind: "MutatingWebhookConfiguration"}
	validating = apiserver.Resource{Path: "apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", Kind: "ValidatingWebhookConfiguration"}
	place      = Place{Namespace: "ns", Secret: "certificate", Hosts: hosts, Mutating: "m", Validating: "v"}
)

func server(t *testing.T) *apiserver.Server {
	s := apiserver.New(t, secrets, mutating, validating)
	configure(s)
	return s
}

func configure(s *apiserver.Server) {
	s.Put(mutating, &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "m"}, Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "a"}, {Name: "b"}},
	})
	s.Put(validating, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "v"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "c"}},
	})
}

func managed(t *testing.T, s *apiserver.Server) *Managed {
	t.Helper()
	client, err := cluster.NewClient(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	return NewManaged(client, place, slog.New(slog.DiscardHandler))
}

// bundles are those of all webhooks.
func bundles(t *testing.T, s *apiserver.Server) [][]byte {
	t.Helper()
	var out [][]byte
	for _, o := range []apiserver.Object{s.Get(mutating, "m"), s.Get(validating, "v")} {
		for _, w := range o["webhooks"].([]any) {
			config, _ := w.(map[string]any)["clientConfig"].(map[string]any)
			text, _ := config["caBundle"].(string)
			bundle, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, bundle)
		}
	}
	return out
}

// stored is the material in the Secret.
func stored(t *testing.T, s *apiserver.Server) material {
	t.Helper()
	object := s.Get(secrets, "ns/certificate")
	data := map[string][]byte{}
	for key, value := range object["data"].(map[string]any) {
		text, err := base64.StdEncoding.DecodeString(value.(string))
		if err != nil {
			t.Fatal(err)
		}
		data[key] = text
	}
	m, broken := read(data)
	if len(broken) > 0 {
		t.Fatalf("broken: %v", broken)
	}
	return m
}

func put(s *apiserver.Server, m material) {
	s.Put(secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "certificate"}, Data: m.write(nil)})
}

func TestManagedMakesAndInjects(t *testing.T) {
	s := server(t)
	m := managed(t, s)
	if _, err := m.Certificate(nil); err == nil || m.Ready() == nil || !m.Expires().IsZero() {
		t.Error("there is a certificate before anything was done")
	}
	if err := m.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	has := stored(t, s)
	for i, b := range bundles(t, s) {
		if !bytes.Equal(b, has.bundle()) {
			t.Errorf("webhook %d has bundle %s", i, b)
		}
	}
	cert, err := m.Certificate(nil)
	if err != nil || !cert.Leaf.Equal(has.serving.leaf) || m.Ready() != nil || m.Expires() != has.serving.leaf.NotAfter {
		t.Errorf("certificate: %v %v", err, m.Ready())
	}
	writes := func(c apiserver.Call) bool { return c.Verb != "get" }
	before := s.Count(writes)
	if err := m.look(t.Context()); err != nil || s.Count(writes) != before {
		t.Errorf("wrote without need: %d times, %v", s.Count(writes)-before, err)
	}
	configure(s) // by somebody who has the manifest
	if err := m.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, b := range bundles(t, s) {
		if !bytes.Equal(b, has.bundle()) {
			t.Errorf("webhook %d was not repaired: %s", i, b)
		}
	}
}

func TestManagedRenewsWhatHasEnded(t *testing.T) {
	s := server(t)
	m := managed(t, s)
	if err := m.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	was := stored(t, s)
	ended, err := newServing(hosts, was.authority, time.Now().Add(-servingLife-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	was.serving = ended
	put(s, was)
	if err := m.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	cert, err := m.Certificate(nil)
	if err != nil || !time.Now().Before(cert.Leaf.NotAfter) || !cert.Leaf.Equal(stored(t, s).serving.leaf) {
		t.Errorf("certificate until %v: %v", cert.Leaf.NotAfter, err)
	}
	old, _, err := material{}.renew(hosts, time.Now().Add(-authorityLife-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	put(s, old)
	if err := m.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	has := stored(t, s)
	if err := believed(has, bundles(t, s)[0], time.Now()); err != nil {
		t.Error(err)
	}
}

// A configuration that changes between reading and writing is read again. One that an
// API server takes from nobody is an error.
func TestManagedInjectsAgain(t *testing.T) {
	s := server(t)
	refusals := 1
	s.FailWith(func(c apiserver.Call) int {
		if c.Verb != "patch" || refusals == 0 {
			return 0
		}
		refusals--
		return http.StatusUnprocessableEntity
	})
	m := managed(t, s)
	if err := m.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, b := range bundles(t, s) {
		if !bytes.Equal(b, stored(t, s).bundle()) {
			t.Errorf("webhook %d has bundle %s", i, b)
		}
	}
	refusals = 100
	configure(s)
	if m.look(t.Context()) == nil || refusals == 0 {
		t.Errorf("no error, or no end: %d refusals are left", refusals)
	}
}

// The Secret is deleted: API servers believe each replica, whether it has seen that
// or not.
func TestManagedLosesItsSecret(t *testing.T) {
	s := server(t)
	first, second := managed(t, s), managed(t, s)
	for _, m := range []*Managed{first, second} {
		if err := m.look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	lost := stored(t, s)
	s.Delete(secrets, "ns/certificate")
	for _, m := range []*Managed{first, second} {
		if err := m.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, replica := range []*Managed{first, second} {
			cert, err := replica.Certificate(nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range bundles(t, s) {
				roots := x509.NewCertPool()
				roots.AppendCertsFromPEM(b)
				if _, err := cert.Leaf.Verify(x509.VerifyOptions{DNSName: hosts[0], Roots: roots}); err != nil {
					t.Error(err)
				}
			}
		}
	}
	has := stored(t, s)
	if now, _ := second.Certificate(nil); has.authority.leaf.Equal(lost.authority.leaf) || !now.Leaf.Equal(has.serving.leaf) || !bytes.Equal(has.previous, lost.authority.cert) {
		t.Error("the authority that was deleted goes on, or no other has taken over")
	}
}

// What is served changes only when API servers have been told whom to believe.
func TestManagedTellsFirst(t *testing.T) {
	s := server(t)
	m := managed(t, s)
	if err := m.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	first, _ := m.Certificate(nil)
	other, _, err := material{}.renew(hosts, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	put(s, other)
	s.FailWith(func(c apiserver.Call) int {
		if c.Verb == "patch" {
			return http.StatusForbidden
		}
		return 0
	})
	if err := m.look(t.Context()); err == nil {
		t.Fatal("no error")
	}
	if now, _ := m.Certificate(nil); !now.Leaf.Equal(first.Leaf) {
		t.Error("serves with what nobody believes")
	}
	s.FailWith(nil)
	if err := m.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now, _ := m.Certificate(nil); !now.Leaf.Equal(other.serving.leaf) {
		t.Error("does not serve with what the replicas share")
	}
}

// Replicas that begin at the same time end with one authority.
func TestReplicasShare(t *testing.T) {
	s := server(t)
	var all sync.WaitGroup
	replicas := make([]*Managed, 5)
	for i := range replicas {
		replicas[i] = managed(t, s)
		all.Go(func() {
			for replicas[i].look(t.Context()) != nil { // a patch of another came first
				if t.Context().Err() != nil {
					return
				}
			}
		})
	}
	all.Wait()
	has := stored(t, s)
	for i, m := range replicas {
		if cert, err := m.Certificate(nil); err != nil || !cert.Leaf.Equal(has.serving.leaf) {
			t.Errorf("replica %d serves with another certificate: %v", i, err)
		}
	}
	if !bytes.Equal(bundles(t, s)[0], has.bundle()) {
		t.Error("another bundle was injected")
	}
}

// Nobody asks a webhook that is in no configuration: it is ready for whoever
// writes one, and tells it then.
func TestManagedWithoutConfiguration(t *testing.T) {
	s := server(t)
	s.Delete(validating, "v")
	var log bytes.Buffer
	m := managed(t, s)
	m.log = slog.New(slog.NewTextHandler(&log, nil))
	for range 3 {
		if err := m.look(t.Context()); err != nil || m.Ready() != nil {
			t.Fatalf("%v; ready: %v", err, m.Ready())
		}
	}
	if n := strings.Count(log.String(), "is missing"); n != 1 || !m.absent["validatingwebhookconfigurations"] || m.absent["mutatingwebhookconfigurations"] {
		t.Errorf("told %d times: %v\n%s", n, m.absent, &log)
	}
	configure(s)
	if err := m.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, b := range bundles(t, s) {
		if has := stored(t, s); !bytes.Equal(b, has.bundle()) {
			t.Errorf("webhook %d has bundle %s", i, b)
		}
	}
	s.FailWith(func(c apiserver.Call) int {
		if c.Verb == "get" && c.Resource == "validatingwebhookconfigurations" {
			return http.StatusForbidden
		}
		return 0
	})
	if err := m.look(t.Context()); err == nil || m.Ready() != nil {
		t.Errorf("%v; a replica that is believed stays ready while the API server is in trouble: %v", err, m.Ready())
	}
	fresh := managed(t, s)
	if err := fresh.look(t.Context()); err == nil || fresh.Ready() == nil {
		t.Errorf("%v; ready, though it cannot see whether it is believed: %v", err, fresh.Ready())
	}
	s.FailWith(nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- fresh.Run(ctx) }()
	for end := time.Now().Add(time.Minute); fresh.Ready() != nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not ready within a minute")
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestMounted(t *testing.T) {
	folder := t.TempDir()
	write := func(p *pair) {
		t.Helper()
		for name, text := range map[string][]byte{"tls.crt": p.cert, "tls.key": p.keyBlock} {
			if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	log := slog.New(slog.DiscardHandler)
	if _, err := NewMounted(folder, log); err == nil {
		t.Error("no error without files")
	}
	now := time.Now()
	authority, err := newAuthority(now)
	if err != nil {
		t.Fatal(err)
	}
	first, err := newServing(hosts, authority, now)
	if err != nil {
		t.Fatal(err)
	}
	write(first)
	m, err := NewMounted(folder, log)
	if err != nil || m.Ready() != nil {
		t.Fatalf("%v %v", err, m.Ready())
	}
	second, err := newServing(hosts, authority, now.Add(-servingLife-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	write(second)
	if err := m.reload(); err != nil {
		t.Fatal(err)
	}
	if cert, _ := m.Certificate(nil); !cert.Leaf.Equal(second.leaf) || m.Ready() == nil {
		t.Error("serves with the first, or is ready with what has ended")
	}
	if err := os.WriteFile(filepath.Join(folder, "tls.crt"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.reload(); err == nil {
		t.Error("no error of a broken file")
	}
	if cert, _ := m.Certificate(nil); !cert.Leaf.Equal(second.leaf) {
		t.Error("a broken file has taken the certificate away")
	}
}
