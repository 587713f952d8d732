package webhook_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.run/internal/webhook"
	"fairlead.run/test/apiserver"
)

// mounted is a folder with a certificate, and who to believe for it.
func mounted(t *testing.T) (folder string, bundle []byte) {
	t.Helper()
	api := cluster(t)
	start(t, api, options()).stop()
	folder = t.TempDir()
	data := api.Get(secrets, "fairlead-system/fairlead-webhook-certificate")["data"].(map[string]any)
	for _, name := range []string{"tls.crt", "tls.key"} {
		text, err := base64.StdEncoding.DecodeString(data[name].(string))
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return folder, injected(t, api)
}

// Nothing is answered from caches that have not been filled, and the replica
// says what it waits for. With a mounted certificate nothing is written.
func TestNothingIsAnsweredTooEarly(t *testing.T) {
	o := options()
	folder, bundle := mounted(t)
	o.CertDir = folder
	api := cluster(t)
	api.FailWith(func(c apiserver.Call) int {
		if c.Resource == "runtimeclasspolicies" {
			return http.StatusForbidden
		}
		return 0
	})
	server, err := webhook.Open(api.Config(), o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	r := &replica{Server: server, t: t, api: api, client: believing(t, bundle)}
	eventually(t, "a reason", func() bool {
		err := server.Ready()
		return err != nil && strings.Contains(err.Error(), "runtimeclasspolicies have not been read yet: ") && strings.Contains(err.Error(), "orbidden")
	})
	if code, text := r.send("/mutate-pods", jsonType, bytes.NewReader(reviewOf(t, creating(t, pod())))); code != http.StatusServiceUnavailable {
		t.Errorf("%d %s", code, text)
	}
	api.FailWith(nil)
	eventually(t, "ready", func() bool { return server.Ready() == nil })
	if got := r.ask("/mutate-pods", creating(t, pod())); !got.Allowed {
		t.Errorf("%+v", got.Result)
	}
	if n := api.Count(func(c apiserver.Call) bool { return c.Verb != "list" && c.Verb != "watch" }); n != 0 {
		t.Errorf("%d requests besides those of the caches", n)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// halves is a body whose second half waits.
type halves struct {
	first, second *strings.Reader
	more          <-chan struct{}
}

func (h *halves) Read(p []byte) (int, error) {
	if n, err := h.first.Read(p); err != io.EOF {
		return n, err
	}
	<-h.more
	return h.second.Read(p)
}

// A request that has begun when the order to end comes is answered.
func TestEndIsGraceful(t *testing.T) {
	r := start(t, cluster(t), options())
	text := string(reviewOf(t, creating(t, pod())))
	reviews, _ := r.Addresses()
	goOn, answered := make(chan struct{}), make(chan int, 1)
	r.ask("/mutate-pods", creating(t, pod())) // makes the connection
	go func() {
		resp, err := r.client.Post("https://"+reviews.String()+"/mutate-pods", jsonType, &halves{strings.NewReader(text[:50]), strings.NewReader(text[50:]), goOn})
		if err != nil {
			t.Error(err)
			answered <- 0
			return
		}
		_ = resp.Body.Close()
		answered <- resp.StatusCode
	}()
	eventually(t, "a request on its way", func() bool {
		return strings.HasSuffix(r.metric("fairlead_webhook_requests_in_flight"), " 1")
	})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		r.stop()
	}()
	eventually(t, "not ready", func() bool { return r.Ready() != nil })
	close(goOn)
	if code := <-answered; code != http.StatusOK {
		t.Errorf("code %d", code)
	}
	<-stopped
}
