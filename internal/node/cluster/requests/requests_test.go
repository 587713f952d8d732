package requests

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"fairlead.run/internal/cluster"
)

// TestRequestsAreCounted has answers, refusals and what has no answer, of a client of Kubernetes.
func TestRequestsAreCounted(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Has("watch"):
		case r.Method == http.MethodGet:
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind":"Node","apiVersion":"v1"}`))
		default:
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	c := New()
	config := &rest.Config{Host: server.URL}
	config.Wrap(c.Over)
	client, err := cluster.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	core := client.REST(corev1.SchemeGroupVersion)
	for range 2 {
		if err := core.Get().Resource("nodes").Name("n").Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	_ = core.Delete().Resource("nodes").Name("n").Do(t.Context()).Error()
	if w, err := core.Get().Resource("nodes").Param("watch", "true").Watch(context.Background()); err == nil {
		w.Stop()
	}
	server.Close()
	_ = core.Get().Resource("nodes").Name("n").MaxRetries(0).Do(t.Context()).Error()

	var out strings.Builder
	if err := c.Write(&out); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`rest_client_requests_total{code="200",method="GET",host="HOST"} 3`,
		`rest_client_requests_total{code="403",method="DELETE",host="HOST"} 1`,
		`rest_client_requests_total{code="<error>",method="GET",host="HOST"} 1`,
		`rest_client_request_duration_seconds_count{verb="GET",host="HOST"} 3`,
		`rest_client_request_duration_seconds_count{verb="DELETE",host="HOST"} 1`,
	} {
		if want = strings.ReplaceAll(want, "HOST", u.Host); !strings.Contains(out.String(), want+"\n") {
			t.Errorf("no %s in\n%s", want, &out)
		}
	}
}
