package certificates

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"fairlead.run/internal/cluster"
)

// It is five minutes.
func init() { transport.CertCallbackRefreshDuration = 10 * time.Millisecond }

// A client that reads the link goes on with the next certificate by itself.
func TestAClientTakesTheNextCertificate(t *testing.T) {
	names := make(chan string, 100)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		names <- r.TLS.PeerCertificates[0].Subject.CommonName
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"x"}}`)
	}))
	folder := Folder{filepath.Join(t.TempDir(), "pki"), "kubelet-client"}
	if _, err := SelfSigned(folder, []string{"first"}, nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	client, err := cluster.NewClient(&rest.Config{Host: server.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{
		CAData: ca, CertFile: folder.CurrentPath(), KeyFile: folder.CurrentPath(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	ask := func() string {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{}}
		if err := client.REST(corev1.SchemeGroupVersion).Get().Resource("namespaces").Name("x").Do(ctx).Into(got); err != nil {
			t.Fatal(err)
		}
		return <-names
	}
	if name := ask(); name != "first" {
		t.Fatalf("the client is %s", name)
	}
	if _, err := SelfSigned(folder, []string{"second"}, nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	for ask() != "second" {
		time.Sleep(10 * time.Millisecond)
	}
}
