package zpages

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestForms has text for people, and objects for who asks for them.
func TestForms(t *testing.T) {
	a := &About{Component: "kubelet", Version: "v1.2.3", Started: time.Now().Add(-time.Hour), Flags: map[string]string{"b": "2", "a": "1"}, Paths: []string{"/healthz", "/metrics"}}
	for _, tt := range []struct {
		path, accept string
		code         int
		kind         string // of the answer
		want         []string
	}{
		{"/statusz", "", 200, "text/plain; charset=utf-8", []string{"\nkubelet statusz\n", "\nUp: 1h0m0s\n", "\nBinary version: v1.2.3\n", "\nPaths: /healthz /metrics\n"}},
		{"/statusz", "*/*", 200, "text/plain; charset=utf-8", []string{"\nkubelet statusz\n"}},
		{"/statusz", "application/json;v=v1beta1;g=config.k8s.io;as=Statusz", 200, "application/json", []string{`"kind":"Statusz","apiVersion":"config.k8s.io/v1beta1"`, `"name":"kubelet"`, `"uptimeSeconds":3600`, `"paths":["/healthz","/metrics"]`}},
		{"/statusz", "application/json;v=v1alpha1;g=config.k8s.io;as=Statusz, */*", 200, "application/json", []string{`config.k8s.io/v1alpha1`}},
		{"/statusz", "application/yaml;v=v1beta1;g=config.k8s.io;as=Statusz", 200, "application/yaml", []string{"kind: Statusz\n", "uptimeSeconds: 3600\n"}},
		{"/statusz", "application/json", 406, "text/plain; charset=utf-8", []string{"as=Statusz"}},
		{"/statusz", "application/json;v=v1beta1;g=config.k8s.io;as=Flagz", 406, "text/plain; charset=utf-8", nil},
		{"/flagz", "text/plain", 200, "text/plain; charset=utf-8", []string{"\nkubelet flagz\n", "\na: 1\nb: 2\n"}},
		{"/flagz", "application/json;v=v1beta1;g=config.k8s.io;as=Flagz", 200, "application/json", []string{`"kind":"Flagz"`, `"flags":{"a":"1","b":"2"}`}},
		{"/flagz", "application/json;v=v2;g=config.k8s.io;as=Flagz", 406, "text/plain; charset=utf-8", nil},
	} {
		r, w := httptest.NewRequest("GET", tt.path, nil), httptest.NewRecorder()
		if tt.accept != "" {
			r.Header.Set("Accept", tt.accept)
		}
		serve := a.Statusz
		if tt.path == "/flagz" {
			serve = a.Flagz
		}
		if err := serve(w, r); err != nil {
			t.Fatal(err)
		}
		if w.Code != tt.code || w.Header().Get("Content-Type") != tt.kind {
			t.Errorf("%s, %s: %d %s", tt.path, tt.accept, w.Code, w.Header().Get("Content-Type"))
		}
		for _, want := range tt.want {
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s, %s: no %q in %s", tt.path, tt.accept, want, w.Body)
			}
		}
		if tt.kind == "application/json" && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s", w.Body)
		}
	}
}
