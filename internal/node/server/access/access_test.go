package access

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

func TestAttributes(t *testing.T) {
	for _, tt := range []struct{ method, path, want string }{
		{"GET", "/stats/summary", "get stats"},
		{"GET", "/stats", "get stats"},
		{"GET", "/metrics", "get metrics"},
		{"GET", "/metrics/cadvisor", "get metrics"},
		{"HEAD", "/metrics/resource", "get metrics"},
		{"GET", "/metricsandmore", "get proxy"},
		{"GET", "/logs/", "get log"},
		{"GET", "/spec", "get proxy"},
		{"POST", "/checkpoint/ns/pod/c", "create checkpoint"},
		{"GET", "/pods", "get pods, get proxy"},
		{"GET", "/runningpods/", "get pods, get proxy"},
		{"GET", "/healthz", "get healthz, get proxy"},
		{"GET", "/healthz/ping", "get healthz, get proxy"},
		{"GET", "/configz", "get configz, get proxy"},
		{"GET", "/statusz", "get statusz"},
		{"GET", "/flagz", "get configz"},
		{"GET", "/containerLogs/ns/pod/c", "get proxy"},
		{"GET", "/debug/pprof/heap", "get proxy"},
		{"PUT", "/debug/flags/v", "update proxy"},
		{"DELETE", "/x", "delete proxy"},
		{"PATCH", "/x", "patch proxy"},
		{"POST", "/exec/ns/pod/c", "create proxy"},
		// Opened by GET, as WebSockets are, it is no reading.
		{"GET", "/exec/ns/pod/c", "create proxy"},
		{"GET", "/attach/ns/pod/c", "create proxy"},
		{"GET", "/portForward/ns/pod", "create proxy"},
		{"GET", "/run/ns/pod/c", "create proxy"},
		{"GET", "/running", "get proxy"},
		{"GET", "/", "get proxy"},
		{"CONNECT", "/pods", ""},
		{"PROPFIND", "/pods", ""},
	} {
		r := httptest.NewRequest("GET", tt.path, nil)
		r.Method = tt.method
		var got []string
		for _, a := range attributes(r, "n1") {
			got = append(got, a.Verb+" "+a.Subresource)
			if a.Resource != "nodes" || a.Name != "n1" || a.Version != "v1" || a.Group != "" {
				t.Errorf("%s %s: %+v", tt.method, tt.path, a)
			}
		}
		if strings.Join(got, ", ") != tt.want {
			t.Errorf("%s %s: asks for %q, want %q", tt.method, tt.path, got, tt.want)
		}
	}
}

// api is an API server that knows tokens and rights by name.
type api struct {
	mu     sync.Mutex
	users  map[string]authenticationv1.UserInfo
	rights []string // "user verb subresource"
	down   error
	asked  []string
	wait   chan struct{}
}

func (a *api) ReviewToken(_ context.Context, r *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	if a.wait != nil {
		<-a.wait
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, "token "+r.Spec.Token)
	user, ok := a.users[r.Spec.Token]
	r.Status = authenticationv1.TokenReviewStatus{Authenticated: ok, User: user, Audiences: r.Spec.Audiences}
	return r, a.down
}

func (a *api) ReviewAccess(_ context.Context, r *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	what := fmt.Sprintf("%s %s %s", r.Spec.User, r.Spec.ResourceAttributes.Verb, r.Spec.ResourceAttributes.Subresource)
	a.asked = append(a.asked, what)
	r.Status.Allowed = slices.Contains(a.rights, what)
	return r, a.down
}

func (a *api) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.asked)
}

func users(names ...string) map[string]authenticationv1.UserInfo {
	out := map[string]authenticationv1.UserInfo{}
	for _, name := range names {
		out[name+"-token"] = authenticationv1.UserInfo{Username: name, Groups: []string{authenticated}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}}
	}
	return out
}

func gate(t *testing.T, c Config) http.Handler {
	t.Helper()
	c.NodeName, c.Log = "n1", slog.New(slog.DiscardHandler)
	g, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "in", r.Header.Get("Authorization"))
	}))
}

func ask(h http.Handler, path, authorization string) (int, string) {
	r := httptest.NewRequest("GET", path, nil)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, strings.TrimSpace(w.Body.String())
}

func TestGate(t *testing.T) {
	reader := []string{"reader get metrics", "reader get pods", "old get proxy"}
	for _, tt := range []struct {
		name, path, auth string
		change           func(*Config, *api)
		code             int
		body             string
	}{
		{name: "allowed", path: "/metrics", auth: "Bearer reader-token", code: 200, body: "in"},
		{name: "scheme in small letters", path: "/metrics", auth: "bearer reader-token", code: 200, body: "in"},
		{name: "by the fine right", path: "/pods", auth: "Bearer reader-token", code: 200, body: "in"},
		{name: "by the old right", path: "/pods", auth: "Bearer old-token", code: 200, body: "in"},
		{name: "forbidden", path: "/configz", auth: "Bearer reader-token", code: 403, body: "Forbidden (user=reader, verb=get, resource=nodes, subresource(s)=[configz proxy])"},
		{name: "no commands for readers", path: "/exec/a/b/c", auth: "Bearer old-token", code: 403, body: "Forbidden (user=old, verb=create, resource=nodes, subresource(s)=[proxy])"},
		{name: "unknown token", path: "/metrics", auth: "Bearer bad", code: 401, body: "Unauthorized"},
		{name: "other scheme", path: "/metrics", auth: "Basic cmVhZGVyOg==", code: 401, body: "Unauthorized"},
		{name: "nobody", path: "/metrics", code: 401, body: "Unauthorized"},
		{name: "empty token", path: "/metrics", auth: "Bearer ", code: 401, body: "Unauthorized"},
		{name: "anonymous is forbidden", path: "/metrics", change: func(c *Config, _ *api) { c.Anonymous = true }, code: 403, body: "Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[metrics])"},
		{name: "anonymous is allowed", path: "/healthz", change: func(c *Config, a *api) {
			c.Anonymous, a.rights = true, []string{"system:anonymous get healthz"}
		}, code: 200, body: "in"},
		{name: "a bad token is not anonymous", path: "/healthz", auth: "Bearer bad", change: func(c *Config, _ *api) { c.Anonymous, c.AlwaysAllow = true, true }, code: 401, body: "Unauthorized"},
		{name: "a token that nobody looks at is not anonymous", path: "/healthz", auth: "Bearer bad", change: func(c *Config, _ *api) { c.Tokens, c.Anonymous, c.AlwaysAllow = nil, true, true }, code: 401, body: "Unauthorized"},
		{name: "everything", path: "/exec/a/b/c", auth: "Bearer reader-token", change: func(c *Config, _ *api) { c.AlwaysAllow = true }, code: 200, body: "in"},
		{name: "everything, but not for nobody", path: "/metrics", change: func(c *Config, _ *api) { c.AlwaysAllow = true }, code: 401, body: "Unauthorized"},
		{name: "API server is down", path: "/metrics", auth: "Bearer reader-token", change: func(_ *Config, a *api) { a.down = errors.New("down") }, code: 401, body: "Unauthorized"},
		{name: "API server is down for access", path: "/metrics", change: func(c *Config, a *api) { c.Anonymous, a.down = true, errors.New("down") }, code: 500, body: "Authorization error (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[metrics]): the API server could not be asked; try again"},
		{name: "audience", path: "/metrics", auth: "Bearer reader-token", change: func(c *Config, _ *api) { c.Audiences = []string{"node"} }, code: 200, body: "in"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := &api{users: users("reader", "old"), rights: reader}
			c := Config{Tokens: a, Access: a}
			if tt.change != nil {
				tt.change(&c, a)
			}
			if code, body := ask(gate(t, c), tt.path, tt.auth); code != tt.code || body != tt.body {
				t.Errorf("got %d %q, want %d %q", code, body, tt.code, tt.body)
			}
		})
	}
}

// otherAudience answers for a token of somebody else's.
type otherAudience struct{ api }

func (a *otherAudience) ReviewToken(ctx context.Context, r *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	r, err := a.api.ReviewToken(ctx, r)
	r.Status.Audiences = []string{"somebody"}
	return r, err
}

func TestTokenForOthersIsRefused(t *testing.T) {
	a := &otherAudience{api{users: users("reader")}}
	if code, _ := ask(gate(t, Config{Tokens: a, AlwaysAllow: true, Audiences: []string{"node"}}), "/metrics", "Bearer reader-token"); code != 401 {
		t.Errorf("got %d", code)
	}
}

func TestAnswersAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{users: users("reader"), rights: []string{"reader get metrics"}}
		h := gate(t, Config{Tokens: a, Access: a})
		steps := []struct {
			sleep      time.Duration
			path, auth string
			code       int
			asks       int
		}{
			{0, "/metrics", "Bearer reader-token", 200, 2},
			{time.Minute, "/metrics/cadvisor", "Bearer reader-token", 200, 0},
			{2 * time.Minute, "/metrics", "Bearer reader-token", 200, 1}, // the token
			{3 * time.Minute, "/metrics", "Bearer reader-token", 200, 2}, // both
			{0, "/configz", "Bearer reader-token", 403, 2},
			{29 * time.Second, "/configz", "Bearer reader-token", 403, 0},
			{2 * time.Second, "/configz", "Bearer reader-token", 403, 2},
			{0, "/metrics", "Bearer bad", 401, 1},
			{9 * time.Second, "/metrics", "Bearer bad", 401, 0},
			{2 * time.Second, "/metrics", "Bearer bad", 401, 1},
		}
		for i, s := range steps {
			time.Sleep(s.sleep)
			before := a.count()
			if code, _ := ask(h, s.path, s.auth); code != s.code || a.count()-before != s.asks {
				t.Errorf("step %d: %d with %d questions, want %d with %d", i, code, a.count()-before, s.code, s.asks)
			}
		}
	})
}

func TestFailuresAreNotKept(t *testing.T) {
	a := &api{users: users("reader"), down: errors.New("down")}
	h := gate(t, Config{Tokens: a, AlwaysAllow: true})
	if code, _ := ask(h, "/metrics", "Bearer reader-token"); code != 401 {
		t.Fatal(code)
	}
	a.mu.Lock()
	a.down = nil
	a.mu.Unlock()
	if code, _ := ask(h, "/metrics", "Bearer reader-token"); code != 200 {
		t.Errorf("got %d once the API server is back", code)
	}
}

// A scrape by many at once is one question, and one who leaves takes nobody along.
func TestSameQuestionIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{users: users("reader"), wait: make(chan struct{})}
		h := gate(t, Config{Tokens: a, AlwaysAllow: true})
		ctx, cancel := context.WithCancel(t.Context())
		var in, out atomic.Int32
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				r := httptest.NewRequest("GET", "/metrics", nil)
				r.Header.Set("Authorization", "Bearer reader-token")
				if i == 0 {
					r = r.WithContext(ctx)
				}
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code == 200 {
					in.Add(1)
				} else {
					out.Add(1)
				}
			})
			synctest.Wait()
		}
		cancel()
		synctest.Wait()
		close(a.wait)
		all.Wait()
		if in.Load() != 19 || out.Load() != 1 || a.count() != 1 {
			t.Errorf("%d in, %d out, %d questions", in.Load(), out.Load(), a.count())
		}
	})
}

func TestCacheIsBounded(t *testing.T) {
	g, err := New(Config{NodeName: "n", Log: slog.New(slog.DiscardHandler), Tokens: &api{}, AlwaysAllow: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxAnswers + 100 {
		g.tokens.keep(fmt.Sprint(i), answer[tokenAnswer]{until: time.Now().Add(time.Hour)})
	}
	if n := len(g.tokens.answers); n > maxAnswers || n < maxAnswers/2 {
		t.Errorf("%d answers", n)
	}
}

func TestConfigThatLetsNobodyInIsRefused(t *testing.T) {
	a, log := &api{}, slog.New(slog.DiscardHandler)
	for name, c := range map[string]Config{
		"no rights":  {NodeName: "n", Log: log, Tokens: a},
		"no way in":  {NodeName: "n", Log: log, Access: a},
		"no name":    {Log: log, Tokens: a, Access: a},
		"no logging": {NodeName: "n", Tokens: a, Access: a},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key}
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a *authority) issue(t *testing.T, change func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "kube-apiserver", Organization: []string{"admins"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if change != nil {
		change(template)
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
}

func TestCertificatesOverTLS(t *testing.T) {
	old, next := newAuthority(t, "old"), newAuthority(t, "new")
	path := filepath.Join(t.TempDir(), "ca.crt")
	replace := func(text []byte) {
		t.Helper()
		if err := os.WriteFile(path+".new", text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	replace(old.pem())
	var mu sync.Mutex
	var told []string
	tell := func(message string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, message)
	}
	bundle, err := NewBundle(path, tell)
	if err != nil {
		t.Fatal(err)
	}
	serving := old.issue(t, func(c *x509.Certificate) {
		c.DNSNames, c.ExtKeyUsage = []string{"n1"}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	})
	conf, err := TLS{Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &serving, nil }}.Config()
	if err != nil {
		t.Fatal(err)
	}
	a := &api{rights: []string{"kube-apiserver get metrics"}}
	s := httptest.NewUnstartedServer(gate(t, Config{Clients: bundle, Access: a}))
	s.TLS = conf
	s.StartTLS()
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(old.cert)
	get := func(certs ...tls.Certificate) int {
		t.Helper()
		transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "n1", Certificates: certs}}
		resp, err := (&http.Client{Transport: transport}).Get(s.URL + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	good := old.issue(t, nil)
	for name, tt := range map[string]struct {
		cert tls.Certificate
		want int
	}{
		"good":            {good, 200},
		"for servers":     {old.issue(t, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), 401},
		"expired":         {old.issue(t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), 401},
		"of another CA":   {next.issue(t, nil), 401},
		"without a name":  {old.issue(t, func(c *x509.Certificate) { c.Subject = pkix.Name{Organization: []string{"admins"}} }), 401},
		"somebody else's": {old.issue(t, func(c *x509.Certificate) { c.Subject.CommonName = "somebody" }), 403},
	} {
		if got := get(tt.cert); got != tt.want {
			t.Errorf("%s: got %d, want %d", name, got, tt.want)
		}
	}
	if got := get(); got != 401 {
		t.Errorf("without certificate: got %d", got)
	}
	replace(next.pem())
	if got := get(good); got != 401 {
		t.Errorf("after the CA went: got %d", got)
	}
	if got := get(next.issue(t, nil)); got != 200 {
		t.Errorf("after the new CA came: got %d", got)
	}
	replace([]byte("not a certificate"))
	if got := get(next.issue(t, nil)); got != 200 {
		t.Errorf("with a broken file: got %d, want what was before", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := get(next.issue(t, nil)); got != 200 {
		t.Errorf("without the file: got %d, want what was before", got)
	}
	if _, err := NewBundle(path, tell); err == nil {
		t.Error("a file that is not there is no bundle")
	}
	if err := os.Mkdir(path, 0o700); err != nil { // which can be looked at, and not read
		t.Fatal(err)
	}
	for range 2 {
		if got := get(next.issue(t, nil)); got != 200 {
			t.Errorf("with a file that cannot be read: got %d, want what was before", got)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	replace(old.pem())
	if got := get(good); got != 200 {
		t.Errorf("after it is mended: got %d", got)
	}
	mu.Lock()
	defer mu.Unlock()
	for i, want := range []string{"there is no PEM certificate in " + path, "no such file", "is a directory"} {
		if len(told) != 3 || !strings.Contains(told[i], want) || !strings.Contains(told[i], "as it was") {
			t.Fatalf("told %q, want %s", told, want)
		}
	}
}

func TestTLSConfig(t *testing.T) {
	cert := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("none") }
	for name, tt := range map[string]struct {
		c   TLS
		err string
		min uint16
	}{
		"default":      {TLS{Certificate: cert}, "", tls.VersionTLS12},
		"1.3":          {TLS{Certificate: cert, MinVersion: "VersionTLS13"}, "", tls.VersionTLS13},
		"suite":        {TLS{Certificate: cert, CipherSuites: []string{"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}}, "", tls.VersionTLS12},
		"1.0":          {TLS{Certificate: cert, MinVersion: "VersionTLS10"}, "no version that is allowed", 0},
		"unsafe suite": {TLS{Certificate: cert, CipherSuites: []string{"TLS_RSA_WITH_RC4_128_SHA"}}, "not a safe one", 0},
		"nothing":      {TLS{}, "no certificate", 0},
	} {
		c, err := tt.c.Config()
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: got %v", name, err)
			}
			continue
		}
		if err != nil || c.MinVersion != tt.min || c.ClientAuth != tls.RequestClientCert {
			t.Errorf("%s: %v %+v", name, err, c)
		}
	}
}
