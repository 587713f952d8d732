package webhook

import (
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"testing"
)

// Clients keep their connection to a replica that serves, and not to one that ends.
func TestClientsLeave(t *testing.T) {
	s := &Server{}
	web := httptest.NewUnstartedServer(s.leaving(http.NotFoundHandler()))
	web.EnableHTTP2 = true
	web.StartTLS()
	defer web.Close()
	kept := func() (reused bool) {
		t.Helper()
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { reused = c.Reused }})
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, web.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := web.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.ProtoMajor != 2 || resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s %s", resp.Proto, resp.Status)
		}
		return reused
	}
	kept()
	if !kept() {
		t.Error("a connection was not kept")
	}
	s.ending.Store(true)
	kept() // is told to leave, and may be before the client has read that
	for kept() {
		if t.Context().Err() != nil {
			t.Fatal("the connection is kept")
		}
	}
}
