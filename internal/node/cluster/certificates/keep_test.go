package certificates

import (
	"context"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"fairlead.run/internal/cluster"
	"fairlead.run/test/apiserver"
)

// kubeconfig writes one for a user.
func kubeconfig(t *testing.T, u *clientcmdapi.AuthInfo) string {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://server"}
	c.AuthInfos["u"] = u
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	path := filepath.Join(t.TempDir(), "kubelet.conf")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// keeping has the certificate of a kubeconfig kept until the test ends, and returns what
// is told of it.
func keeping(t *testing.T, s *signer, kubeconfig string) func() []string {
	t.Helper()
	var mu sync.Mutex
	var told []string
	keep, err := KeepClient(kubeconfig, s.asker(Folder{}), func(message string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, message)
	})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	running.Go(func() { _ = keep(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return func() []string {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), told...)
	}
}

// TestAKubeletsCertificateIsRenewed takes over from a kubelet: the certificate that its
// kubeconfig names is due, and the next one is found where the kubeconfig says.
func TestAKubeletsCertificateIsRenewed(t *testing.T) {
	pki := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t, apiserver.InMemory(t, requests))
		folder := Folder{pki, "kubelet-client"}
		first, err := SelfSigned(folder, []string{"system:node:n"}, nil, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		file, err := filepath.EvalSymlinks(folder.CurrentPath())
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{os.Remove(folder.CurrentPath()), os.Symlink(file, folder.CurrentPath())} { // a kubelet's link is absolute
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Until(due(first.Leaf)) - time.Hour)
		told := keeping(t, s, kubeconfig(t, &clientcmdapi.AuthInfo{ClientCertificate: folder.CurrentPath(), ClientKey: folder.CurrentPath()}))
		synctest.Wait()
		if n := len(s.open()); n != 0 {
			t.Fatalf("%d requests are open before it is due", n)
		}
		time.Sleep(time.Hour + look)
		s.answer(certificatesv1.CertificateApproved, 1000*time.Hour)
		if has, err := folder.Current(); err != nil || has.Leaf.Equal(first.Leaf) || has.Leaf.Subject.CommonName != "system:node:n" {
			t.Errorf("got %v, %v", has, err)
		}
		if m := told(); len(m) > 0 {
			t.Errorf("it is renewed, and told of is %q", m)
		}
	})
}

// TestTheEndOfOtherCertificatesIsTold: nobody here can write them anew.
func TestTheEndOfOtherCertificatesIsTold(t *testing.T) {
	now := time.Now()
	pki := t.TempDir()
	made, err := SelfSigned(Folder{pki, "kubelet"}, []string{"system:node:n"}, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	current := Folder{pki, "kubelet"}.CurrentPath()
	text, err := os.ReadFile(current)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(pki, "node.pem")
	if err := os.WriteFile(other, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := SelfSigned(Folder{pki, "admin"}, []string{"admin"}, nil, now); err != nil {
		t.Fatal(err)
	}
	admin := Folder{pki, "admin"}.CurrentPath()
	for name, tt := range map[string]struct {
		user  clientcmdapi.AuthInfo
		wants []string
	}{
		"data":         {clientcmdapi.AuthInfo{ClientCertificateData: text, ClientKeyData: text}, []string{"kubelet.conf", "--bootstrap-kubeconfig"}},
		"another name": {clientcmdapi.AuthInfo{ClientCertificate: other, ClientKey: other}, []string{other, "have another program renew"}},
		"another user": {clientcmdapi.AuthInfo{ClientCertificate: admin, ClientKey: admin}, []string{admin, "for admin,"}},
		"a token":      {clientcmdapi.AuthInfo{Token: "x"}, nil},
	} {
		path := kubeconfig(t, &tt.user)
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSigner(t, apiserver.InMemory(t, requests))
				time.Sleep(time.Until(now))
				told := keeping(t, s, path)
				first := told()
				if len(tt.wants) == 0 {
					if len(first) > 0 {
						t.Errorf("told %q", first)
					}
					return
				}
				if len(first) != 1 {
					t.Fatalf("told %q", first)
				}
				for _, want := range append(tt.wants, endOf(t, path).UTC().Format(time.RFC3339)) {
					if !strings.Contains(first[0], want) {
						t.Errorf("%q does not say %q", first[0], want)
					}
				}
				time.Sleep(200 * 24 * time.Hour) // it is not due yet
				if n := len(told()); n != 1 {
					t.Errorf("told %d times while there is time", n)
				}
				time.Sleep(time.Until(made.Leaf.NotAfter) - 2*again)
				before := len(told())
				time.Sleep(again)
				if n := len(told()); n != before+1 {
					t.Errorf("told %d times within a day near the end", n-before)
				}
				if n := len(s.open()); n != 0 {
					t.Errorf("%d requests", n)
				}
			})
		})
	}
}

func endOf(t *testing.T, kubeconfig string) time.Time {
	t.Helper()
	u, err := userOf(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	var c *x509.Certificate
	if c, err = u.certificate(); err != nil {
		t.Fatal(err)
	}
	return c.NotAfter
}

// TestAnEndedCertificateSaysWhatToDo.
func TestAnEndedCertificateSaysWhatToDo(t *testing.T) {
	pki := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t, apiserver.InMemory(t))
		folder := Folder{pki, "c"}
		if _, err := SelfSigned(folder, []string{"system:node:n"}, nil, time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * selfSignedLife)
		if err := ForClient(s.asker(folder)).Ensure(t.Context()); err == nil || !strings.Contains(err.Error(), "ended at") || !strings.Contains(err.Error(), "--bootstrap-kubeconfig") {
			t.Errorf("got %v", err)
		}
	})
}

// TestAnEndedCertificateBeginsAnew has who may ask for new nodes ask when the API server does not know
// the node's own certificate any more, and not before.
func TestAnEndedCertificateBeginsAnew(t *testing.T) {
	pki := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t, apiserver.InMemory(t, requests))
		as := func(token string) func() (*cluster.Client, error) {
			return func() (*cluster.Client, error) {
				config := s.Config()
				config.BearerToken = token
				return cluster.NewClient(config)
			}
		}
		var known atomic.Bool // the API server knows the node
		var begun atomic.Int32
		known.Store(true)
		s.Intercept(func(_ apiserver.Call, w http.ResponseWriter, r *http.Request) bool {
			switch r.Header.Get("Authorization") {
			case "Bearer own":
				if !known.Load() {
					w.WriteHeader(http.StatusUnauthorized)
					return true
				}
			case "Bearer begin":
				begun.Add(1)
			}
			return false
		})
		a := s.asker(Folder{pki, "c"})
		a.Client, a.Begin = as("own"), as("begin")
		m := ForClient(a)
		run(t, m)
		s.answer(certificatesv1.CertificateApproved, 10*time.Hour)
		first := m.Current()
		known.Store(false)
		time.Sleep(9*time.Hour + 30*time.Minute)
		if begun.Load() > 0 {
			t.Error("another asks before the certificate has ended")
		}
		time.Sleep(time.Hour)
		s.answer(certificatesv1.CertificateApproved, 10*time.Hour)
		if now := m.Current(); begun.Load() == 0 || now.Leaf.Equal(first.Leaf) {
			t.Errorf("another was asked %d times, and the certificate ends at %s", begun.Load(), now.Leaf.NotAfter)
		}

		// A clock that is wrong is no reason: the API server knows the node.
		known.Store(true)
		begun.Store(0)
		a.Folder = Folder{pki, "d"}
		if _, err := SelfSigned(a.Folder, []string{"system:node:n"}, nil, time.Now().Add(-2*selfSignedLife)); err != nil {
			t.Fatal(err)
		}
		run(t, ForClient(a))
		s.answer(certificatesv1.CertificateApproved, 10*time.Hour)
		if begun.Load() > 0 {
			t.Error("another asks though the node is known")
		}
	})
}
