package certificates

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"math"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/lasting"
	"fairlead.run/test/apiserver"
)

var (
	requests = apiserver.Resource{Path: "apis/certificates.k8s.io/v1/" + resource, Kind: "CertificateSigningRequest"}
	quiet    = slog.New(slog.DiscardHandler)
)

// signer is a cluster that signs what it is told to.
type signer struct {
	*apiserver.Server
	t   *testing.T
	ca  *x509.Certificate
	key *ecdsa.PrivateKey
}

func newSigner(t *testing.T, server *apiserver.Server) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now(), NotAfter: time.Now().Add(1e6 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	return &signer{server, t, ca, key}
}

func (s *signer) client() (*cluster.Client, error) { return cluster.NewClient(s.Config()) }

func (s *signer) asker(folder Folder) Asker {
	return Asker{Node: "n", Folder: folder, Client: s.client, Log: quiet}
}

// open are the requests that nobody has answered.
func (s *signer) open() []certificatesv1.CertificateSigningRequest {
	s.t.Helper()
	c, err := s.client()
	if err != nil {
		s.t.Fatal(err)
	}
	list := &certificatesv1.CertificateSigningRequestList{}
	if err := c.REST(certificatesv1.SchemeGroupVersion).Get().Resource(resource).Do(s.t.Context()).Into(list); err != nil {
		s.t.Fatal(err)
	}
	var out []certificatesv1.CertificateSigningRequest
	for _, r := range list.Items {
		if len(r.Status.Conditions) == 0 {
			out = append(out, r)
		}
	}
	return out
}

// answer approves or denies all that is open.
func (s *signer) answer(with certificatesv1.RequestConditionType, life time.Duration) *x509.CertificateRequest {
	s.t.Helper()
	synctestWait()
	open := s.open()
	if len(open) != 1 {
		s.t.Fatalf("%d requests are open, want 1", len(open))
	}
	r := open[0]
	block, _ := pem.Decode(r.Spec.Request)
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: with, Status: corev1.ConditionTrue, Reason: "Because", Message: "of this"}}
	if with == certificatesv1.CertificateApproved {
		s.Put(requests, &r) // approved at first, and signed later
		synctestWait()
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
			SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: csr.Subject, DNSNames: csr.DNSNames, IPAddresses: csr.IPAddresses,
			NotBefore: time.Now(), NotAfter: time.Now().Add(life),
		}, s.ca, csr.PublicKey, s.key)
		if err != nil {
			s.t.Fatal(err)
		}
		r.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		r.ResourceVersion = ""
	}
	s.Put(requests, &r)
	synctestWait()
	return csr
}

// The tests of files and of sockets answer requests, too.
var synctestWait = synctest.Wait

func run(t *testing.T, m *Manager) {
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	running.Go(func() { _ = m.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

func TestTheClientCertificateIsRenewed(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t, apiserver.InMemory(t, requests))
		folder := Folder{dir, "kubelet-client"}
		m := ForClient(s.asker(folder))
		run(t, m)
		csr := s.answer(certificatesv1.CertificateApproved, 10*time.Hour)
		if csr.Subject.CommonName != "system:node:n" || len(csr.Subject.Organization) != 1 || csr.Subject.Organization[0] != "system:nodes" {
			t.Errorf("the request is for %s", csr.Subject)
		}
		first := m.Current()
		if first == nil {
			t.Fatal("there is no certificate")
		}
		kept, err := folder.Current()
		if err != nil || !kept.Leaf.Equal(first.Leaf) {
			t.Errorf("the folder has %v, %v", kept, err)
		}
		time.Sleep(7*time.Hour - time.Minute)
		if n := len(s.open()); n != 0 {
			t.Errorf("%d requests are open before 70%% of the life", n)
		}
		for begun := time.Now(); len(s.open()) == 0; time.Sleep(time.Minute) {
			if time.Since(begun) > 2*time.Hour+2*time.Minute {
				t.Fatal("nothing is asked for up to 90% of the life")
			}
		}
		if again := s.answer(certificatesv1.CertificateApproved, 10*time.Hour); again.PublicKey.(*ecdsa.PublicKey).Equal(csr.PublicKey) {
			t.Error("the key stays")
		}
		if m.Current().Leaf.Equal(first.Leaf) {
			t.Error("the certificate stays")
		}
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(files) != 2 {
			t.Errorf("the folder has %v, want a certificate and the link", files)
		}
	})
}

// An agent that ends while it waits goes on with the same request.
func TestARequestGoesOnAfterARestart(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t, apiserver.InMemory(t, requests))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = ForClient(s.asker(Folder{dir, "c"})).Run(ctx)
		}()
		synctest.Wait()
		cancel()
		<-done
		m := ForClient(s.asker(Folder{dir, "c"}))
		run(t, m)
		s.answer(certificatesv1.CertificateApproved, time.Hour)
		if m.Current() == nil {
			t.Error("there is no certificate")
		}
	})
}

func TestADeniedRequestIsFollowedByAnother(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t, apiserver.InMemory(t, requests))
		var log strings.Builder
		asker := s.asker(Folder{dir, "c"})
		asker.Log = slog.New(slog.NewTextHandler(&log, nil))
		m := ForClient(asker)
		run(t, m)
		first := s.answer(certificatesv1.CertificateDenied, 0)
		time.Sleep(10 * time.Second)
		if second := s.answer(certificatesv1.CertificateApproved, time.Hour); second.PublicKey.(*ecdsa.PublicKey).Equal(first.PublicKey) {
			t.Error("the key is that of the request that was denied")
		}
		if m.Current() == nil || !strings.Contains(log.String(), "denied: Because: of this") {
			t.Errorf("the log is %s", log.String())
		}
	})
}

// TestNotGranted tells of a request that nobody approves, and of those that are denied, each
// once however often it is asked for again.
func TestNotGranted(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t, apiserver.InMemory(t, requests))
		asker := s.asker(Folder{dir, "s"})
		var mu sync.Mutex
		var warned []string
		asker.Warn = func(reason, message string) {
			mu.Lock()
			defer mu.Unlock()
			warned = append(warned, reason+": "+message)
		}
		m := ForServing(asker, func() ([]string, []net.IP) { return []string{"n"}, nil })
		run(t, m)
		told := func(n int, words ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if len(warned) != n {
				t.Fatalf("told %q, want %d", warned, n)
			}
			for _, w := range words {
				if !strings.Contains(warned[n-1], w) {
					t.Errorf("%q has no %q", warned[n-1], w)
				}
			}
		}
		time.Sleep(50 * time.Second)
		told(0)                      // most are approved at once
		time.Sleep(50 * time.Minute) // it is told again while it lasts
		first := s.open()[0].Name
		told(2, ServingNotGranted, "kubectl certificate approve "+first, "Without one kubectl logs")
		time.Sleep(20 * time.Minute) // it is another one now
		s.Delete(requests, first)
		told(3, "kubectl certificate approve "+s.open()[0].Name)
		for range 2 {
			s.answer(certificatesv1.CertificateDenied, 0)
			told(4, "was denied: Because: of this")
			time.Sleep(10 * time.Second)
		}
		s.answer(certificatesv1.CertificateApproved, 1000*time.Hour)
		told(4)
	})
}

func TestTheServingCertificateFollowsTheAddresses(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t, apiserver.InMemory(t, requests))
		var mu sync.Mutex
		var ips []net.IP
		asker := s.asker(Folder{dir, "kubelet-server"})
		asker.Metrics = NewMetrics()
		m := ForServing(asker, func() ([]string, []net.IP) {
			mu.Lock()
			defer mu.Unlock()
			if ips == nil {
				return nil, nil
			}
			return []string{"n"}, ips
		})
		set := func(to ...net.IP) {
			mu.Lock()
			defer mu.Unlock()
			ips = to
		}
		run(t, m)
		time.Sleep(10 * time.Minute)
		if n := len(s.open()); n != 0 {
			t.Errorf("%d requests are open without an address", n)
		}
		if _, err := m.GetCertificate(nil); !errors.Is(err, errdefs.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		set(net.ParseIP("10.0.0.9")) // nobody approves this one
		time.Sleep(2 * time.Minute)
		for _, r := range s.open() {
			r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: "Seen", Status: corev1.ConditionTrue}}
			s.Put(requests, &r)
		}
		set(net.ParseIP("10.0.0.1"))
		time.Sleep(2 * time.Minute)
		if _, err := m.GetCertificate(nil); err == nil || !strings.Contains(err.Error(), "kubectl certificate approve node-csr-") {
			t.Errorf("while it waits, it says %v", err)
		}
		if csr := s.answer(certificatesv1.CertificateApproved, 1000*time.Hour); len(csr.IPAddresses) != 1 || len(csr.DNSNames) != 1 {
			t.Errorf("the request is for %v and %v", csr.IPAddresses, csr.DNSNames)
		}
		set(net.ParseIP("10.0.0.1"), net.ParseIP("10.0.0.2"))
		time.Sleep(2 * time.Minute)
		s.answer(certificatesv1.CertificateApproved, 1000*time.Hour)
		c, err := m.GetCertificate(nil)
		if err != nil || len(c.Leaf.IPAddresses) != 2 {
			t.Errorf("got %v, %v", c, err)
		}
		counted(t, asker.Metrics,
			"kubelet_certificate_manager_server_rotation_seconds_count 1", // the first one took nobody's place
			"kubelet_server_expiration_renew_errors 0", "kubelet_certificate_manager_client_ttl_seconds +Inf",
			"kubelet_certificate_manager_server_ttl_seconds "+strconv.FormatFloat(math.Trunc(time.Until(c.Leaf.NotAfter).Seconds()), 'g', -1, 64))
	})
}

// counted wants lines of metrics.
func counted(t *testing.T, m *Metrics, lines ...string) {
	t.Helper()
	var out strings.Builder
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		if !strings.Contains(out.String(), "\n"+line+"\n") {
			t.Errorf("there is no %s in\n%s", line, &out)
		}
	}
}

// TestMetrics has the certificate of a kubeconfig, renewals that fail, and ends that are over.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMetrics()
		counted(t, m, "kubelet_certificate_manager_client_ttl_seconds +Inf", "kubelet_certificate_manager_server_ttl_seconds +Inf",
			"kubelet_certificate_manager_client_expiration_renew_errors 0", "kubelet_server_expiration_renew_errors 0")
		m.Client(&x509.Certificate{NotAfter: time.Now().Add(time.Hour)})
		m.Client(nil) // a user with a token
		m.Serving(&x509.Certificate{NotAfter: time.Now().Add(time.Minute)})
		m.failed(false)
		m.failed(true)
		m.rotated(&x509.Certificate{NotBefore: time.Now().Add(-2 * time.Hour)})
		time.Sleep(90*time.Second + time.Millisecond)
		counted(t, m, "kubelet_certificate_manager_client_ttl_seconds 3509", "kubelet_certificate_manager_server_ttl_seconds -30",
			"kubelet_certificate_manager_client_expiration_renew_errors 1", "kubelet_server_expiration_renew_errors 1",
			`kubelet_certificate_manager_server_rotation_seconds_bucket{le="3600"} 0`, `kubelet_certificate_manager_server_rotation_seconds_bucket{le="14400"} 1`)
		var none *Metrics // counts nothing
		none.Client(nil)
		none.Serving(nil)
		none.failed(true)
		none.rotated(nil)
	})
}

func TestSelfSigned(t *testing.T) {
	folder, now := Folder{filepath.Join(t.TempDir(), "pki"), "kubelet"}, time.Now()
	ip := []net.IP{net.ParseIP("10.0.0.1")}
	first, err := SelfSigned(folder, []string{"n"}, ip, now)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Leaf.VerifyHostname("10.0.0.1"); err != nil {
		t.Error(err)
	}
	has := first
	for _, tt := range []struct {
		name  string
		names []string
		at    time.Time
		same  bool
	}{
		{"later", []string{"n"}, now.Add(100 * 24 * time.Hour), true},
		{"near its end", []string{"n"}, now.Add(360 * 24 * time.Hour), false},
		{"another name", []string{"n", "m"}, now.Add(361 * 24 * time.Hour), false},
		{"fewer names", []string{"n"}, now.Add(361 * 24 * time.Hour), true},
	} {
		got, err := SelfSigned(folder, tt.names, ip, tt.at)
		if err != nil {
			t.Fatal(err)
		}
		if got.Leaf.Equal(has.Leaf) != tt.same {
			t.Errorf("%s: the certificate is the same: %t, want %t", tt.name, !tt.same, tt.same)
		}
		has = got
	}
}

// TestSelfRenews has a process that serves for longer than its certificate is good renew
// that, and go on with the old one while it cannot.
func TestSelfRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "pki")
		var warned []string
		s, err := NewSelf(Asker{Folder: Folder{dir, "kubelet"}, Log: slog.New(slog.DiscardHandler), Metrics: NewMetrics(), Warn: func(reason, message string) {
			warned = append(warned, reason+": "+message)
		}}, []string{"n"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		get := func() *x509.Certificate {
			t.Helper()
			c, err := s.GetCertificate(nil)
			if err != nil {
				t.Fatal(err)
			}
			return c.Leaf
		}
		first := get()
		time.Sleep(100 * 24 * time.Hour)
		if !get().Equal(first) {
			t.Error("it is made anew long before its end")
		}
		time.Sleep(260 * 24 * time.Hour)
		second := get()
		if second.Equal(first) || !time.Now().Before(due(second)) {
			t.Errorf("five days before its end it is as good as until %v", second.NotAfter)
		}
		if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(360 * 24 * time.Hour)
		for range 3 {
			if !get().Equal(second) {
				t.Error("nothing could be written, and it is another one")
			}
			time.Sleep(2 * look)
		}
		if len(warned) != 1 {
			t.Errorf("told %q", warned)
		}
		time.Sleep(lasting.Again)
		get()
		if len(warned) != 2 || warned[1] != warned[0] || !strings.HasPrefix(warned[0], ServingNotRenewed+": ") || !strings.Contains(warned[0], "ends at "+second.NotAfter.UTC().Format(time.RFC3339)) || !strings.Contains(warned[0], dir) {
			t.Errorf("told %q", warned)
		}
		counted(t, s.Metrics, "kubelet_certificate_manager_server_rotation_seconds_count 1", "kubelet_server_expiration_renew_errors 4")
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * look)
		if get().Equal(second) {
			t.Error("it is not tried again")
		}
	})
}

// A broken folder is as good as none.
func TestHalfWrittenFiles(t *testing.T) {
	dir := t.TempDir()
	folder := Folder{dir, "c"}
	for _, name := range []string{"c-current.pem", "c.key.tmp"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("-----BEGIN"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := folder.Current(); err == nil {
		t.Error("half a certificate is one")
	}
	if _, err := SelfSigned(folder, []string{"n"}, nil, time.Now()); err != nil {
		t.Error(err)
	}
	if key, _, err := folder.pendingKey(); err != nil || key == nil {
		t.Errorf("got %v, %v", key, err)
	}
}

// The first start, over a real connection, and the second.
func TestBootstrap(t *testing.T) {
	server := apiserver.New(t, requests)
	s := newSigner(t, server)
	dir := t.TempDir()
	with := clientcmdapi.NewConfig()
	with.Clusters["c"] = &clientcmdapi.Cluster{Server: server.Config().Host}
	with.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "abcdef.0123456789abcdef"}
	with.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	with.CurrentContext = "x"
	b := Bootstrap{Kubeconfig: filepath.Join(dir, "made", "kubeconfig"), With: filepath.Join(dir, "bootstrap"), Node: "n", Folder: Folder{filepath.Join(dir, "pki"), "kubelet-client"}, Log: quiet}
	if err := clientcmd.WriteToFile(*with, b.With); err != nil {
		t.Fatal(err)
	}
	synctestWait = func() {}
	defer func() { synctestWait = synctest.Wait }()
	for range 2 {
		done := make(chan error)
		go func() { done <- b.Do(t.Context()) }()
		for len(s.open()) == 0 {
			time.Sleep(time.Millisecond)
		}
		s.answer(certificatesv1.CertificateApproved, 10*time.Hour)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		made, err := clientcmd.LoadFromFile(b.Kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		if a := made.AuthInfos["default"]; a.Token != "" || a.ClientKey != b.Folder.CurrentPath() || made.Clusters["default"].Server != server.Config().Host {
			text, _ := json.Marshal(made)
			t.Errorf("the kubeconfig is %s", text)
		}
		before := server.Count(func(apiserver.Call) bool { return true })
		if err := b.Do(t.Context()); err != nil || server.Count(func(apiserver.Call) bool { return true }) != before {
			t.Errorf("a start with a certificate that holds asks again, %v", err)
		}
		// The node was off until its certificate had ended.
		if err := os.Remove(b.Folder.CurrentPath()); err != nil {
			t.Fatal(err)
		}
	}
}

// A kubelet's kubeconfig, whose certificate has ended, begins anew in the kubelet's folder.
func TestBootstrapOfAKubeletsKubeconfig(t *testing.T) {
	server := apiserver.New(t, requests)
	s := newSigner(t, server)
	old := Folder{filepath.Join(t.TempDir(), "pki"), "kubelet-client"}
	if _, err := SelfSigned(old, []string{"system:node:n"}, nil, time.Now().Add(-2*selfSignedLife)); err != nil {
		t.Fatal(err)
	}
	with := clientcmdapi.NewConfig()
	with.Clusters["c"] = &clientcmdapi.Cluster{Server: server.Config().Host}
	with.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "abcdef.0123456789abcdef"}
	with.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	with.CurrentContext = "x"
	b := Bootstrap{
		Kubeconfig: kubeconfig(t, &clientcmdapi.AuthInfo{ClientCertificate: old.CurrentPath(), ClientKey: old.CurrentPath()}),
		With:       filepath.Join(t.TempDir(), "bootstrap"), Node: "n", Folder: Folder{t.TempDir(), "fairlead-client"}, Log: quiet,
	}
	if err := clientcmd.WriteToFile(*with, b.With); err != nil {
		t.Fatal(err)
	}
	synctestWait = func() {}
	defer func() { synctestWait = synctest.Wait }()
	done := make(chan error, 1)
	go func() { done <- b.Do(t.Context()) }()
	for len(s.open()) == 0 {
		select {
		case err := <-done:
			t.Fatalf("nothing was asked for, %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	s.answer(certificatesv1.CertificateApproved, 10*time.Hour)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if has, err := old.Current(); err != nil || time.Now().After(has.Leaf.NotAfter) {
		t.Errorf("got %v, %v", has, err)
	}
}
